"""Tensors on their way from one session to another, or out to another server.

Either side may come first. Nothing here waits: who comes too early leaves a function to be called.
"""

import threading
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class _Offer(Generic[T]):
    owner: int
    value: T
    left: int
    was_swept: bool = False


@dataclass(frozen=True)
class _Wait(Generic[T]):
    taker: int
    then: Callable[[T], None]


class Exchange(Generic[T]):
    """Values under keys, first come first served, never to their own offerer. Any thread may call.

    Burn's own server lets a second offer under a key replace the first. Keys of two client processes may collide,
    and a queue then still gives each taker its own value if offers and takes keep their order.
    """

    def __init__(self) -> None:
        self._offers: dict[Hashable, deque[_Offer[T]]] = {}
        self._waits: dict[Hashable, deque[_Wait[T]]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return sum(map(len, tuple(self._offers.values())))

    def offer(self, key: Hashable, owner: int, value: T, count: int = 1) -> None:
        """Let `value` be taken under `key`, `count` times; whoever waits for it is called from here."""
        served: list[_Wait[T]] = []
        with self._lock:
            waits = self._waits.get(key, deque())
            for wait in tuple(waits):
                if len(served) < count and wait.taker != owner:
                    served.append(wait)
                    waits.remove(wait)
            if not waits:
                self._waits.pop(key, None)
            if left := count - len(served):
                self._offers.setdefault(key, deque()).append(_Offer(owner, value, left))
        for wait in served:
            wait.then(value)

    def take(self, key: Hashable, taker: int, then: Callable[[T], None] | None = None) -> T | None:
        """The value under `key`; None if there is none yet, and `then`, if given, is called with it once it comes."""
        with self._lock:
            offers = self._offers.get(key, ())
            for offer in offers:
                if offer.owner != taker:
                    offer.left -= 1
                    if not offer.left:
                        self._remove(key, offer)
                    return offer.value
            if then is not None:
                self._waits.setdefault(key, deque()).append(_Wait(taker, then))
            return None

    def cancel(self, key: Hashable, then: Callable[[T], None]) -> None:
        """Wait no longer; nothing happens if the value came meanwhile."""
        with self._lock:
            kept = deque(wait for wait in self._waits.pop(key, ()) if wait.then != then)
            if kept:
                self._waits[key] = kept

    def withdraw(self, owner: int) -> None:
        """Forget what `owner` offers and nobody took."""
        self._forget(lambda offer: offer.owner == owner)

    def sweep(self) -> None:
        """Forget what an earlier sweep has seen already, so that nothing stays longer than two of them apart."""
        self._forget(lambda offer: offer.was_swept)
        with self._lock:
            for offers in self._offers.values():
                for offer in offers:
                    offer.was_swept = True

    def _forget(self, is_over: Callable[[_Offer[T]], bool]) -> None:
        with self._lock:
            for key, offers in tuple(self._offers.items()):
                for offer in tuple(offers):
                    if is_over(offer):
                        self._remove(key, offer)

    def _remove(self, key: Hashable, offer: _Offer[T]) -> None:
        offers = self._offers[key]
        for place, other in enumerate(offers):
            if other is offer:
                del offers[place]
                break
        if not offers:
            del self._offers[key]
