// SPDX-License-Identifier: Apache-2.0

// What is known of an array's values without reading them.
//
// A save counts while it hashes, so that a question about a whole run ("when
// did the first NaN appear?") reads a record for each step and no array.

#ifndef CKPTREE_STATISTICS_H_
#define CKPTREE_STATISTICS_H_

#include <cstdint>
#include <limits>

#include "ckptree/export.h"

namespace ckptree {

// Of one chunk, or merged over the chunks of a leaf. min, max, sum and
// sum_of_squares are over the finite elements only, in double; complex elements
// count their two parts. bool counts as 0 and 1. With no finite element min is
// +inf and max -inf.
struct CKPTREE_EXPORT Statistics {
  std::uint64_t count = 0;  // Elements (parts of complex ones), all kinds.
  std::uint64_t nan = 0;
  std::uint64_t inf = 0;
  std::uint64_t zero = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double sum_of_squares = 0;

  // Adds what `other` counted. Merging the chunks of a leaf in their order
  // gives the same bits every time.
  void Merge(const Statistics& other);

  // Elements that the four numbers above are made of.
  std::uint64_t finite() const { return count - nan - inf; }
  double mean() const;  // NaN without finite elements.
  // sqrt(sum_of_squares): Inf where elements are so large (1e154 and more) that
  // a double does not hold their squares, and 0 where all are so small
  // (1e-162).
  double l2() const;
  // By the two sums, within what min and max leave possible: 0 where all
  // elements are one, and nowhere else. NaN where it is not known: the sums say
  // nothing of elements that differ from their mean by less than a
  // ten-millionth of it, nor where l2() is as said above. Few digits of it are
  // right where that is less than a millionth.
  double std_dev() const;

  // Bitwise for the doubles.
  friend CKPTREE_EXPORT bool operator==(const Statistics& a,
                                        const Statistics& b);
};

}  // namespace ckptree

#endif  // CKPTREE_STATISTICS_H_
