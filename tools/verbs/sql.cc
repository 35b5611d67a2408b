// SPDX-License-Identifier: Apache-2.0

// `ckptree sql`: a query of SQLite's over what a store says.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "tools/line/command.h"
#include "tools/line/table_flags.h"
#include "tools/output/clock.h"
#include "tools/output/ending.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/kept_rows.h"
#include "tools/output/quantity.h"
#include "tools/output/written_table.h"
#include "tools/verbs/sql_tables.h"

#ifdef CKPTREE_SQLITE
#include <sqlite3.h>
#endif

namespace ckptree::tools {

#ifndef CKPTREE_SQLITE

absl::StatusOr<int> RunSql(Session&) {
  return WithHint(
      absl::FailedPreconditionError("this ckptree was built without SQLite"),
      "install libsqlite3-dev and build it again; `ckptree find` and "
      "`ckptree history` answer much of it");
}

#else

namespace {

// What a table asks, and where its first error is kept.
struct QueryStore {
  const Store* store;
  absl::Status error;
  bool declares = false;  // A table says its columns, by a CREATE TABLE.
};

struct QueryTable {
  sqlite3_vtab base;  // First: SQLite hands it back.
  const SqlTable* table;
  QueryStore* of;
};

struct QueryCursor {
  sqlite3_vtab_cursor base;
  std::unique_ptr<SqlRows> rows;
  bool at_end = true;
};

// Which columns an index looks up, in this order in its arguments.
enum : int { kByBranch = 1, kByStep = 2, kByKey = 4 };

int Fail(QueryStore* of, const absl::Status& status) {
  if (of->error.ok()) of->error = status;
  return SQLITE_ERROR;
}

int Connect(sqlite3* database, void* argument, int, const char* const*,
            sqlite3_vtab** out, char**) {
  const auto& [table, of] =
      *static_cast<std::pair<const SqlTable*, QueryStore*>*>(argument);
  const std::string text =
      // By its key SQLite knows a row that two look-ups give, as those of OR
      // and of FULL JOIN do. A cursor has no number for it that stays.
      absl::StrFormat("CREATE TABLE x(%s, PRIMARY KEY(%s)) WITHOUT ROWID",
                      table->columns, table->row_key);
  of->declares = true;
  const int code = sqlite3_declare_vtab(database, text.c_str());
  of->declares = false;
  if (code != SQLITE_OK) return code;
  auto made = std::make_unique<QueryTable>();
  made->table = table;
  made->of = of;
  *out = &made.release()->base;
  return SQLITE_OK;
}

int Disconnect(sqlite3_vtab* table) {
  delete reinterpret_cast<QueryTable*>(table);
  return SQLITE_OK;
}

int BestIndex(sqlite3_vtab* base, sqlite3_index_info* info) {
  const SqlTable& table = *reinterpret_cast<QueryTable*>(base)->table;
  int found[3] = {-1, -1, -1};
  const int columns[3] = {table.branch, table.step, table.key};
  for (int i = 0; i < info->nConstraint; ++i) {
    const auto& constraint = info->aConstraint[i];
    if (constraint.usable == 0 || constraint.op != SQLITE_INDEX_CONSTRAINT_EQ) {
      continue;
    }
    // `COLLATE NOCASE` takes for alike what is not looked up as alike.
    if (std::string_view(sqlite3_vtab_collation(info, i)) != "BINARY") continue;
    for (int c = 0; c < 3; ++c) {
      if (columns[c] >= 0 && constraint.iColumn == columns[c]) found[c] = i;
    }
  }
  int arguments = 0;
  double cost = 1e7;
  info->idxNum = 0;
  for (int c = 0; c < 3; ++c) {
    if (found[c] < 0) continue;
    info->aConstraintUsage[found[c]].argvIndex = ++arguments;
    // SQLite need not look whether rows are of this branch and key.
    info->aConstraintUsage[found[c]].omit = columns[c] != table.step;
    info->idxNum |= 1 << c;
    cost /= c == 0 ? 2 : 1000;
  }
  info->estimatedCost = cost;
  info->estimatedRows = static_cast<sqlite3_int64>(cost) + 1;
  return SQLITE_OK;
}

int OpenCursor(sqlite3_vtab*, sqlite3_vtab_cursor** out) {
  *out = &(new QueryCursor())->base;
  return SQLITE_OK;
}

int CloseCursor(sqlite3_vtab_cursor* cursor) {
  delete reinterpret_cast<QueryCursor*>(cursor);
  return SQLITE_OK;
}

int NextRow(sqlite3_vtab_cursor* base) {
  auto* cursor = reinterpret_cast<QueryCursor*>(base);
  const absl::StatusOr<bool> more = cursor->rows->Next();
  if (!more.ok()) {
    return Fail(reinterpret_cast<QueryTable*>(base->pVtab)->of, more.status());
  }
  cursor->at_end = !*more;
  return SQLITE_OK;
}

int Filter(sqlite3_vtab_cursor* base, int index, const char*, int,
           sqlite3_value** arguments) {
  auto* cursor = reinterpret_cast<QueryCursor*>(base);
  auto* table = reinterpret_cast<QueryTable*>(base->pVtab);
  SqlWanted wanted;
  bool none = false;
  const auto text = [&none](sqlite3_value* value) {
    // No text is equal to NULL or to bytes.
    none = none || sqlite3_value_type(value) == SQLITE_BLOB;
    const unsigned char* bytes = sqlite3_value_text(value);
    none = none || bytes == nullptr;
    return bytes == nullptr
               ? std::string()
               : std::string(
                     reinterpret_cast<const char*>(bytes),
                     static_cast<std::size_t>(sqlite3_value_bytes(value)));
  };
  int next = 0;
  if ((index & kByBranch) != 0) wanted.branch = text(arguments[next++]);
  if ((index & kByStep) != 0) {
    // As a column of whole numbers compares: 1, 1.0 and '1.0' are alike.
    sqlite3_value* value = arguments[next++];
    const int type = sqlite3_value_numeric_type(value);
    if (type == SQLITE_INTEGER) {
      wanted.step = sqlite3_value_int64(value);
      none = none || *wanted.step < 0;
    } else if (const double real = sqlite3_value_double(value);
               type == SQLITE_FLOAT && real >= 0 && real < 9.2e18 &&
               real == std::floor(real)) {
      wanted.step = static_cast<std::int64_t>(real);
    } else {
      none = true;
    }
  }
  if ((index & kByKey) != 0) wanted.key = text(arguments[next++]);
  cursor->at_end = true;
  if (none) return SQLITE_OK;
  absl::StatusOr<std::unique_ptr<SqlRows>> rows =
      table->table->rows(*table->of->store, wanted);
  if (!rows.ok()) return Fail(table->of, rows.status());
  cursor->rows = *std::move(rows);
  return NextRow(base);
}

int AtEnd(sqlite3_vtab_cursor* base) {
  return reinterpret_cast<QueryCursor*>(base)->at_end ? 1 : 0;
}

int ColumnOf(sqlite3_vtab_cursor* base, sqlite3_context* context, int column) {
  const SqlValue value =
      reinterpret_cast<QueryCursor*>(base)->rows->Column(column);
  if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    sqlite3_result_int64(context, *whole);
  } else if (const auto* real = std::get_if<double>(&value)) {
    sqlite3_result_double(context, *real);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    sqlite3_result_text64(context, text->data(), text->size(), SQLITE_TRANSIENT,
                          SQLITE_UTF8);
  } else {
    sqlite3_result_null(context);
  }
  return SQLITE_OK;
}

// Of tables without a rowid nobody asks for one.
int RowId(sqlite3_vtab_cursor*, sqlite3_int64*) { return SQLITE_ERROR; }

// Reading and computing, and nothing else: no other file, no change.
int Authorise(void* of, int action, const char*, const char* name, const char*,
              const char*) {
  if (static_cast<const QueryStore*>(of)->declares) return SQLITE_OK;
  switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE:
      return SQLITE_OK;
    case SQLITE_FUNCTION:
      return name != nullptr && (std::strcmp(name, "load_extension") == 0 ||
                                 std::strcmp(name, "fts3_tokenizer") == 0)
                 ? SQLITE_DENY
                 : SQLITE_OK;
    default:
      return SQLITE_DENY;
  }
}

int AskInterrupted(void*) { return Interrupted() ? 1 : 0; }

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close(database); }
};
struct CloseStatement {
  void operator()(sqlite3_stmt* statement) const {
    sqlite3_finalize(statement);
  }
};

SqlValue AnswerAt(sqlite3_stmt* row, int column) {
  switch (sqlite3_column_type(row, column)) {
    case SQLITE_INTEGER:
      return sqlite3_column_int64(row, column);
    case SQLITE_FLOAT:
      return sqlite3_column_double(row, column);
    case SQLITE_NULL:
      return std::monostate();
    case SQLITE_BLOB:
      // Bytes are no text, of which JSON would lose some.
      return absl::AsciiStrToUpper(absl::BytesToHexString(absl::string_view(
          static_cast<const char*>(sqlite3_column_blob(row, column)),
          static_cast<std::size_t>(sqlite3_column_bytes(row, column)))));
    default: {
      const auto* bytes =
          static_cast<const char*>(sqlite3_column_blob(row, column));
      const auto size =
          static_cast<std::size_t>(sqlite3_column_bytes(row, column));
      return size == 0 ? std::string() : std::string(bytes, size);
    }
  }
}

Cell CellOf(const SqlValue& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    return StepCell(*whole);
  }
  if (const auto* real = std::get_if<double>(&value)) return NumberCell(*real);
  if (const auto* text = std::get_if<std::string>(&value)) {
    return TextCell(*text);
  }
  return NoCell();
}

absl::Status WrongQuery(sqlite3* database, const std::string& query) {
  absl::Status status = absl::InvalidArgumentError(
      absl::StrFormat("the query: %s", sqlite3_errmsg(database)));
  const int at = sqlite3_error_offset(database);
  if (at >= 0 && static_cast<std::size_t>(at) <= query.size() &&
      query.find('\n') == std::string::npos) {
    // The caret stands under the character, as those of conditions do.
    const auto place = static_cast<std::size_t>(at);
    const std::string head = Escape(std::string_view(query).substr(0, place));
    const std::string tail = Escape(std::string_view(query).substr(place));
    status = WithPlace(
        std::move(status),
        absl::StrFormat("  %s%s\n  %*s^", head, tail, DisplayWidth(head), ""));
  }
  return WithHint(std::move(status),
                  "`ckptree help sql` lists the tables and their columns");
}

// As many rows as the first piece of a table for people has.
constexpr std::size_t kRowsOfPiece = kRowsOfWhole + 1;

// How many rows are asked for before some are written.
std::size_t MostAtOnce(const std::optional<std::int64_t>& limit) {
  if (!limit) return kRowsOfPiece;
  return static_cast<std::size_t>(
      std::clamp<std::int64_t>(*limit, 1, kRowsOfPiece));
}

// The rows of an answer, which SQLite makes as they are read.
class Answer {
 public:
  // All of these outlive it.
  Answer(sqlite3* database, sqlite3_stmt* statement, QueryStore* asked,
         const std::string& query, std::size_t most)
      : database_(database),
        statement_(statement),
        asked_(asked),
        query_(query),
        most_(most) {}

  // The first ones are dropped as they are written.
  const KeptRows<std::vector<SqlValue>>& rows() const { return rows_; }

  // Reads some more, fewer where they are long in coming; false: those were
  // all. The first `written` are not asked for again.
  absl::StatusOr<bool> Read(std::size_t written) {
    rows_.Drop(written);
    std::vector<std::vector<SqlValue>> next;
    const absl::Time begun = NowForWaits();
    const int columns = sqlite3_column_count(statement_);
    bool more = true;
    while (next.size() < most_ &&
           (next.empty() || NowForWaits() - begun < kPatience)) {
      const int step = sqlite3_step(statement_);
      if (step == SQLITE_ROW) {
        std::vector<SqlValue>& row = next.emplace_back();
        row.reserve(static_cast<std::size_t>(columns));
        for (int i = 0; i < columns; ++i) {
          row.push_back(AnswerAt(statement_, i));
        }
        continue;
      }
      if (Interrupted()) return absl::CancelledError("interrupted");
      if (!asked_->error.ok()) return asked_->error;
      if (step == SQLITE_NOMEM) return NotEnoughMemory();
      if (step != SQLITE_DONE) return WrongQuery(database_, query_);
      more = false;
      break;
    }
    if (Interrupted()) return absl::CancelledError("interrupted");
    rows_.Add(std::move(next), 0);
    return more;
  }

 private:
  static constexpr absl::Duration kPatience = absl::Milliseconds(100);

  sqlite3* const database_;
  sqlite3_stmt* const statement_;
  QueryStore* const asked_;
  const std::string& query_;
  const std::size_t most_;
  KeptRows<std::vector<SqlValue>> rows_;
};

}  // namespace

absl::StatusOr<int> RunSql(Session& session) {
  CKPTREE_ASSIGN_OR_RETURN(const TableOptions options,
                           ParseTableOptions(session.arguments()));
  const std::string& query = session.words()[0];
  CKPTREE_ASSIGN_OR_RETURN(const Store* const store, session.OpenStore());

  sqlite3* opened = nullptr;
  if (sqlite3_open_v2(
          ":memory:", &opened,
          SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY | SQLITE_OPEN_NOMUTEX,
          nullptr) != SQLITE_OK) {
    sqlite3_close(opened);
    return absl::ResourceExhaustedError("SQLite does not open");
  }
  std::unique_ptr<sqlite3, CloseDatabase> database(opened);
  QueryStore asked{store, absl::OkStatus()};
  std::vector<std::pair<const SqlTable*, QueryStore*>> tables;
  for (const SqlTable& table : SqlTables()) tables.emplace_back(&table, &asked);
  // Without xCreate: tables that are there by their names alone.
  sqlite3_module module{};
  module.xConnect = Connect;
  module.xDisconnect = Disconnect;
  module.xDestroy = Disconnect;
  module.xBestIndex = BestIndex;
  module.xOpen = OpenCursor;
  module.xClose = CloseCursor;
  module.xFilter = Filter;
  module.xNext = NextRow;
  module.xEof = AtEnd;
  module.xColumn = ColumnOf;
  module.xRowid = RowId;
  for (auto& table : tables) {
    sqlite3_create_module(opened, std::string(table.first->name).c_str(),
                          &module, &table);
  }
  sqlite3_limit(opened, SQLITE_LIMIT_ATTACHED, 0);
  // 'text' is a text and "name" a column, and never the other way round.
  sqlite3_db_config(opened, SQLITE_DBCONFIG_DQS_DML, 0, nullptr);
  sqlite3_set_authorizer(opened, Authorise, &asked);
  sqlite3_progress_handler(opened, 10000, AskInterrupted, nullptr);
  const Interruptible interruptible;

  sqlite3_stmt* prepared = nullptr;
  const char* rest = nullptr;
  const int code = sqlite3_prepare_v2(
      opened, query.data(), static_cast<int>(query.size()), &prepared, &rest);
  std::unique_ptr<sqlite3_stmt, CloseStatement> statement(prepared);
  if (code == SQLITE_AUTH) {
    return WithHint(absl::InvalidArgumentError("the query does more than read"),
                    "one SELECT: nothing is written, and no file opened");
  }
  if (code != SQLITE_OK) return WrongQuery(opened, query);
  const std::string_view left(
      rest, static_cast<std::size_t>(query.data() + query.size() - rest));
  if (prepared == nullptr || left.find_first_not_of(" \t\n;") != left.npos) {
    return WithHint(absl::InvalidArgumentError("QUERY is one SELECT"),
                    "`ckptree help sql` lists the tables and their columns");
  }
  if (sqlite3_bind_parameter_count(prepared) > 0) {
    return WithHint(absl::InvalidArgumentError(
                        "the query has a parameter, and nothing to put there"),
                    "write the value into it");
  }

  Table table;
  table.schema = "ckptree.sql/1";
  table.rows_name = "rows";
  const int columns = sqlite3_column_count(prepared);
  std::map<std::string, int> seen;
  for (int i = 0; i < columns; ++i) {
    std::string name = sqlite3_column_name(prepared, i);
    if (const int times = seen[name]++; times > 0) {
      absl::StrAppendFormat(&name, "_%d", times + 1);
    }
    table.columns.push_back({.name = name, .title = Escape(name)});
  }
  Answer answer(opened, prepared, &asked, query,
                MostAtOnce(options.where.has_value() || !options.sort.empty() ||
                                   options.reverse
                               ? std::nullopt
                               : options.limit));
  CKPTREE_ASSIGN_OR_RETURN(const bool more, answer.Read(0));
  for (int i = 0; i < columns && answer.rows().end() > 0; ++i) {
    const SqlValue& first = answer.rows()[0][static_cast<std::size_t>(i)];
    table.columns[static_cast<std::size_t>(i)].right =
        std::holds_alternative<std::int64_t>(first) ||
        std::holds_alternative<double>(first);
  }
  table.late_rows = answer.rows().end();
  if (more) {
    table.more_rows = [&](std::size_t written,
                          std::size_t* late_rows) -> absl::StatusOr<bool> {
      CKPTREE_ASSIGN_OR_RETURN(const bool still, answer.Read(written));
      *late_rows = answer.rows().end();
      return still;
    };
  }
  table.make_row = [&](std::size_t at, std::vector<Cell>* row) {
    for (const SqlValue& value : answer.rows()[at]) {
      row->push_back(CellOf(value));
    }
  };
  CKPTREE_RETURN_IF_ERROR(session.Print(std::move(table), options));
  // Its cursors have what was read.
  KeepToTheEnd(std::move(statement));
  KeepToTheEnd(std::move(database));
  return kExitOk;
}

#endif  // CKPTREE_SQLITE

}  // namespace ckptree::tools
