"""Messages between the inferlets of one host, by topic."""

from __future__ import annotations

import asyncio
from collections import deque

from pie_edge.errors import ResourceError
from pie_edge.host.limits import Limits

LONGEST_TOPIC = 256


class Subscription:
    """The messages of one topic for one subscriber, as many as ``backlog`` has room for.

    A slow reader doesn't hold up who writes: what it has no room for is lost, and it is told so once, after what it had.
    """

    def __init__(self, topics: Topics, topic: str, who: str, limits: Limits) -> None:
        self.topic = topic
        self._topics = topics
        self._who = who
        self._room = limits.backlog
        self._unread: deque[str] = deque()
        self._lost = 0
        self._receivers: deque[asyncio.Future[str]] = deque()

    def put(self, text: str) -> None:
        while self._receivers:
            receiver = self._receivers.popleft()
            if not receiver.done():
                receiver.set_result(text)
                return
        if self._lost or len(text) > self._room:
            self._lost += 1
            return
        self._room -= len(text)
        self._unread.append(text)

    def receive(self) -> asyncio.Future[str]:
        """The next message. ResourceError where messages were lost."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        if self._unread:
            text = self._unread.popleft()
            self._room += len(text)
            future.set_result(text)
        elif self._lost:
            lost, self._lost = self._lost, 0
            future.set_exception(
                ResourceError(
                    f"{self._who}: {lost:,} messages of topic {self.topic!r} were lost, because the ones before weren't taken "
                    "in time; receive more often"
                )
            )
        else:
            self._receivers.append(future)
        return future

    def close(self) -> None:
        """No more messages. Whoever waits for one is gone."""
        self._topics.leave(self)
        self._unread.clear()
        self._receivers.clear()


class Topics:
    """Of one host. A topic exists while somebody is subscribed to it."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, dict[Subscription, None]] = {}

    def __len__(self) -> int:
        return len(self._subscriptions)

    def subscribe(self, topic: str, who: str, limits: Limits) -> Subscription:
        _check_topic(topic, who)
        subscription = Subscription(self, topic, who, limits)
        self._subscriptions.setdefault(topic, {})[subscription] = None
        return subscription

    def broadcast(self, topic: str, text: str, who: str, limits: Limits) -> int:
        """How many got it."""
        _check_topic(topic, who)
        if len(text) > limits.message:
            raise ResourceError(
                f"{who}: a message of {len(text):,} characters to topic {topic!r}; the most is {limits.message:,}. "
                "Send it in parts"
            )
        subscribers = list(self._subscriptions.get(topic, ()))
        for subscription in subscribers:
            subscription.put(text)
        return len(subscribers)

    def leave(self, subscription: Subscription) -> None:
        subscribers = self._subscriptions.get(subscription.topic, {})
        subscribers.pop(subscription, None)
        if not subscribers:
            self._subscriptions.pop(subscription.topic, None)


def _check_topic(topic: str, who: str) -> None:
    if not 0 < len(topic) <= LONGEST_TOPIC:
        raise ResourceError(f"{who}: a topic of {len(topic):,} characters; give it 1 to {LONGEST_TOPIC}")
