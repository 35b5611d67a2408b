# SPDX-License-Identifier: Apache-2.0
"""Handlers of documents: JSON and protobuf."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ckptree._rules import Content, Document
from ckptree.metadata import as_json_has_it
from ckptree.orbax._handler import StoreHandler
from ckptree.orbax._items import Item
from ckptree.orbax._option_states import check_processes, tell
from ckptree.orbax.args import JsonRestore, JsonSave, ProtoRestore, ProtoSave
from ckptree.orbax.checkpoint_args import register_with_handler
from ckptree.orbax.options import MultiprocessingOptions

if TYPE_CHECKING:
    from ckptree.orbax._items import StoredItem


class JsonCheckpointHandler(StoreHandler):
    """What JSON can write: JsonSave, JsonRestore. A tuple comes back as a list,
    keys as str."""

    def __init__(
        self,
        filename: str | None = None,
        *,
        multiprocessing_options: MultiprocessingOptions | None = None,
    ) -> None:
        check_processes(multiprocessing_options)
        tell("JsonCheckpointHandler", locals(), JsonCheckpointHandler)

    def pack(self, args: Any) -> Item:
        return json_item(args.item)

    def unpack(self, item: StoredItem, args: Any) -> Any:
        return item.document()


def json_item(value: Any) -> Item:
    """TypeError, ValueError: JSON cannot write it, or loses an entry."""
    as_json_has_it(value)
    text = json.dumps(value)
    return Item(Document(Content("json", text.encode())))


class ProtoCheckpointHandler(StoreHandler):
    """A message of protobuf: ProtoSave, ProtoRestore."""

    def __init__(
        self,
        filename: str = "proto.pbtxt",
        *,
        multiprocessing_options: MultiprocessingOptions | None = None,
    ) -> None:
        check_processes(multiprocessing_options)
        tell("ProtoCheckpointHandler", locals(), ProtoCheckpointHandler)

    def pack(self, args: Any) -> Item:
        message = args.item
        if not hasattr(message, "SerializeToString"):
            raise TypeError(
                "ProtoSave wants a message of protobuf, not "
                f"{type(message).__name__}"
            )
        data = message.SerializeToString(deterministic=True)
        return Item(
            Document(Content("proto", data, message.DESCRIPTOR.full_name))
        )

    def unpack(self, item: StoredItem, args: Any) -> Any:
        if args is None or args.item is None:
            raise ValueError(
                f"{item.path}: a message needs its type: ProtoRestore(item=...)"
            )
        message = args.item()
        message.ParseFromString(item.document())
        return message


register_with_handler(JsonCheckpointHandler, for_save=True)(JsonSave)
register_with_handler(JsonCheckpointHandler, for_restore=True)(JsonRestore)
register_with_handler(ProtoCheckpointHandler, for_save=True)(ProtoSave)
register_with_handler(ProtoCheckpointHandler, for_restore=True)(ProtoRestore)
