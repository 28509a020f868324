"""What lies beside the model: other inferlets, HTTP, and what is kept on disk."""

from __future__ import annotations

from pie_edge.host.guest import Guest
from pie_edge.host.interfaces import CHILD, LONGEST_READ, RESPONSE, SUBSCRIPTION, Interface


def _broadcast(guest: Guest, topic: str, text: str) -> int:
    return guest.facilities.topics.broadcast(topic, text, guest.name, guest.limits)


def _read(guest: Guest, response: int, offset: int, count: int) -> bytes:
    body = guest.responses.find(response).answer.body
    return body[offset : offset + min(count, LONGEST_READ)]


def _send(guest: Guest, child: int, text: str) -> None:
    guest.children.find(child).send(text)


OUTSIDE: dict[str, Interface] = {
    "messaging": (
        {"subscription": (SUBSCRIPTION, Guest.unsubscribe)},
        {
            "broadcast": _broadcast,
            "[static]subscription.create": Guest.subscribe,
            "[method]subscription.id": lambda guest, subscription: subscription,
        },
    ),
    "children": (
        {"child": (CHILD, lambda guest, child: guest.children.drop(child))},
        {
            "[static]child.launch": lambda guest, program, input, options: guest.children.launch(
                program, input, options
            ),
            "[method]child.id": lambda guest, child: child,
            "[method]child.instance-id": lambda guest, child: guest.children.find(child).guest.id,
            "[method]child.send": _send,
            "[method]child.cancel": lambda guest, child: guest.children.cancel(child),
        },
    ),
    "http": (
        {"response": (RESPONSE, lambda guest, response: guest.responses.drop(response))},
        {
            "[method]response.status": lambda guest, response: guest.responses.find(response).answer.status,
            "[method]response.url": lambda guest, response: guest.responses.find(response).url,
            "[method]response.headers": lambda guest, response: guest.responses.find(response).answer.headers,
            "[method]response.size": lambda guest, response: len(guest.responses.find(response).answer.body),
            "[method]response.read": _read,
        },
    ),
    "store": (
        {},
        {
            "get": lambda guest, key: guest.facilities.the_store().get(key),
            "set": lambda guest, key, value: guest.facilities.the_store().set(key, value),
            "delete": lambda guest, key: guest.facilities.the_store().delete(key),
            "exists": lambda guest, key: guest.facilities.the_store().exists(key),
            "list-keys": lambda guest, prefix, after, count: guest.facilities.the_store().keys(prefix, after, count),
        },
    ),
    "snapshots": (
        {},
        {
            "all": lambda guest: guest.snapshots.names(),
            "delete": lambda guest, name: guest.snapshots.delete(name),
        },
    ),
}
