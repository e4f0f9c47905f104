"""The parties of a round: fixed entropy, tiny statistics, messages altered at will."""

import hashlib
import itertools

import numpy as np

import headstart as hs
from headstart.privacy.client import Client
from headstart.privacy.keys import Identity, verifying_key
from headstart.privacy.layout import Layout
from headstart.privacy.messages import FROM_CLIENT, FROM_SERVER, decode, encode
from headstart.privacy.server import Server
from headstart.privacy.terms import Policy, Terms

CLASSES = (0, 1, 2)
LOOSE = Policy(group=2, share=0.5)


def entropy(seed):
    """Bytes that are the same in every run. For tests alone."""
    numbers = itertools.count()

    def draw(size):
        text = f"headstart test entropy {seed} {next(numbers)}".encode()
        return hashlib.shake_256(text).digest(size)

    return draw


def statistics(n, d=2, seed=0, exact=True, head=None):
    """n clients of 0 to 4 samples, values up to the bound."""
    rng = np.random.default_rng(seed)
    head = head or hs.Fed3R()
    found = {}
    for k in range(n):
        size = int(rng.integers(0, 5))
        z, y = rng.uniform(-16, 16, size=(size, d)), rng.choice(CLASSES, size)
        found[f"c{k}"] = head.measure(z, y, exact=exact)
    return found


def identities(names):
    private = {name: entropy(f"identity {name}")(32) for name in names}
    known = {name: verifying_key(key) for name, key in private.items()}
    return {name: Identity(key, known) for name, key in private.items()}


class Round:
    """A server and its clients, a stage at a time."""

    def __init__(
        self, n=4, *, threshold=None, policy=LOOSE, signed=False, stats=None, noise=None, **how
    ):
        self.stats = stats or statistics(n)
        layout = Layout.of(next(iter(self.stats.values())), CLASSES)
        plan = {
            "threshold": threshold or n // 2 + 1,
            "signed": signed,
            "round_id": bytes(32),
            "noise": noise,
        }
        self.terms = Terms.plan(self.stats, layout, **plan)
        people = identities(self.stats) if signed else {}
        self.server = Server(self.terms, least=policy.group, **how)
        self.clients = {
            name: Client(
                name,
                self.terms,
                statistic,
                policy=policy,
                identity=people.get(name),
                entropy=self.entropy(name),
            )
            for name, statistic in self.stats.items()
        }
        self.asked = dict.fromkeys(self.clients, b"")
        self.said = {}  # the last stage's answers

    def entropy(self, name):
        return entropy(name)

    def stage(self, gone=()):
        """Everybody but the gone answers; the stage is closed."""
        self.said = {}
        for name, question in self.asked.items():
            if name not in gone:
                client = self.clients[name]
                self.said[name] = client.answer(question) if question else client.start()
                self.server.receive(name, self.said[name])
        self.asked = self.server.close()
        return self

    def until(self, stage):
        while self.server.stage != stage:
            self.stage()
        return self

    def altered(self, message, **arrays):
        """A message with other arrays (None: without), as a server of bad will would write it."""
        schemas = FROM_SERVER if message[:200].find(b"-ask-") > 0 else FROM_CLIENT
        kind, old = decode(message, schemas, self.terms)
        new = {name: value for name, value in {**old, **arrays}.items() if value is not None}
        return encode(kind, self.terms, {name: new[name] for name in new if name != "terms"})

    def plain(self, names):
        return hs.total(self.stats[name] for name in names)
