"""Terms of a round of six, and one that has come to a stage."""

import itertools

import numpy as np

import headstart as hs
from headstart.privacy.client import Client
from headstart.privacy.layout import Layout
from headstart.privacy.messages import FROM_SERVER, id_array
from headstart.privacy.terms import Policy, Terms
from headstart.statistics import wire

from .parties import CLASSES, LOOSE, Round, identities, statistics

ME = "c1"  # the client that is lied to: member 1 of 0..5
STRICT = Policy(group=4, share=0.5)


def planned(n=6, **how):
    stats = statistics(n)
    layout = Layout.of(stats["c0"], CLASSES)
    return Terms.plan(stats, layout, **how), stats[ME]


def join(terms, statistic, name=ME, **how):
    return Client(name, terms, statistic, **{"policy": LOOSE, **how})


def at(stage, code, signed=False, gone=(), policy=LOOSE, **arrays):
    return stage, code, signed, gone, policy, arrays


def ids(*members):
    return id_array(members)


def drop(name, row):
    """The same table without a row."""
    return lambda old: np.delete(old[name], row, axis=0)


def copied(name, source, target, part=slice(None)):
    """The same table with one row (or a part of it) written over another."""

    def change(old):
        table = old[name].copy()
        table[target, part] = table[source, part]
        return table

    return change


def flipped(name, row):
    def change(old):
        table = old[name].copy()
        table[row, 0] ^= 1
        return table

    return change


def zeroed(name, row, part):
    def change(old):
        table = old[name].copy()
        table[row, part] = 0
        return table

    return change


ALL = ids(0, 1, 2, 3, 4, 5)
OTHERS = ids(0, 2, 3, 4, 5)
SHARES, MASK, CONFIRM, UNMASK = "share", "mask", "confirm", "unmask"


def first(name, count):
    return lambda old: old[name][:count]


LIES = {
    # the roster: everybody's public keys
    "a member twice on the roster": at(SHARES, "duplicate", ids=ids(0, 1, 2, 3, 4, 4)),
    "a stranger on the roster": at(SHARES, "unknown", ids=ids(0, 1, 2, 3, 4, 6)),
    "a negative member on the roster": at(SHARES, "unknown", ids=ids(0, 1, 2, 3, 4, -1)),
    "a roster without itself": at(SHARES, "self", ids=OTHERS, public=drop("public", 1)),
    "its own keys altered": at(SHARES, "keys", public=flipped("public", 1)),
    "one key for two members": at(SHARES, "duplicate", public=copied("public", 2, 3)),
    "one mask key for two": at(SHARES, "duplicate", public=copied("public", 2, 3, slice(32, 64))),
    "a key of which every secret is zero": at(
        SHARES, "keys", public=zeroed("public", 3, slice(0, 32))
    ),
    "a roster below the threshold": at(SHARES, "few", ids=ids(0, 1, 2), public=first("public", 3)),
    "a roster below its minimum": at(
        SHARES, "group", policy=STRICT, ids=ids(0, 1, 2), public=first("public", 3)
    ),
    "a roster without signatures": at(SHARES, "signature", signed=True, signatures=None),
    "a false signature on the roster": at(
        SHARES, "signature", signed=True, signatures=flipped("signatures", 2)
    ),
    "the signature of another": at(
        SHARES, "signature", signed=True, signatures=copied("signatures", 2, 3)
    ),
    "keys that their owner did not sign": at(
        SHARES, "signature", signed=True, public=flipped("public", 2)
    ),
    # the delivery: everybody's sealed shares
    "shares from one member twice": at(MASK, "duplicate", ids=ids(0, 2, 3, 4, 4)),
    "shares from a stranger": at(MASK, "unknown", ids=ids(0, 2, 3, 4, 7)),
    "shares from one who has no keys": at(
        MASK, "unknown", gone=[(SHARES, "c5")], ids=ids(0, 2, 3, 5)
    ),
    "shares from itself": at(MASK, "self", ids=ids(0, 1, 3, 4, 5)),
    "shares that were altered": at(MASK, "sealed", sealed=flipped("sealed", 2)),
    "shares of one under the name of another": at(MASK, "sealed", ids=ids(0, 2, 3, 5, 4)),
    "shares of too few": at(MASK, "few", ids=ids(0, 2), sealed=first("sealed", 2)),
    "shares of fewer than its minimum": at(
        MASK, "group", policy=STRICT, ids=ids(0, 2), sealed=first("sealed", 2)
    ),
    # the survivors, to be confirmed in a signed round
    "itself not among the survivors to confirm": at(CONFIRM, "self", signed=True, ids=OTHERS),
    "a survivor twice": at(CONFIRM, "duplicate", signed=True, ids=ids(0, 1, 2, 2, 3)),
    "a survivor unheard of": at(CONFIRM, "unknown", signed=True, ids=ids(0, 1, 2, 3, 8)),
    "too few survivors to confirm": at(CONFIRM, "few", signed=True, ids=ids(0, 1, 2)),
    # the request for shares
    "both kinds of shares for one peer": at(UNMASK, "overlap", survivors=ALL, dropped=ids(4)),
    "a survivor twice in the request": at(UNMASK, "duplicate", survivors=ids(0, 1, 2, 3, 4, 4)),
    "a dropped one twice": at(UNMASK, "duplicate", survivors=ids(0, 1, 2, 3), dropped=ids(4, 4)),
    "a stranger among the survivors": at(UNMASK, "unknown", survivors=ids(0, 1, 2, 3, 4, 9)),
    "a stranger among the dropped": at(UNMASK, "unknown", dropped=ids(6)),
    "one who never shared, as dropped": at(UNMASK, "unknown", gone=[(MASK, "c5")], dropped=ids(5)),
    "itself among the dropped": at(UNMASK, "self", survivors=OTHERS, dropped=ids(1)),
    "itself on neither list": at(UNMASK, "self", survivors=OTHERS),
    "a member on neither list": at(UNMASK, "cover", survivors=ids(0, 1, 2, 3, 4)),
    "too few survivors": at(UNMASK, "few", survivors=ids(0, 1, 2), dropped=ids(3, 4, 5)),
    "fewer survivors than its minimum": at(
        UNMASK, "group", policy=STRICT, survivors=ids(0, 1, 2), dropped=ids(3, 4, 5)
    ),
    "other survivors than confirmed": at(
        UNMASK, "changed", signed=True, survivors=ids(0, 1, 2, 3, 4), dropped=ids(5)
    ),
    "a request that nobody signed": at(UNMASK, "signature", signed=True, ids=None, signatures=None),
    "too few signers": at(
        UNMASK, "few", signed=True, ids=ids(0, 1, 2), signatures=first("signatures", 3)
    ),
    "a signer twice": at(UNMASK, "duplicate", signed=True, ids=ids(0, 1, 2, 3, 4, 4)),
    "a signer who is no survivor": at(
        UNMASK, "unknown", signed=True, gone=[(CONFIRM, "c5")], ids=ids(0, 1, 2, 3, 5)
    ),
    "a false signature of the survivors": at(
        UNMASK, "signature", signed=True, signatures=flipped("signatures", 3)
    ),
}


def reached(stage, signed=False, gone=(), policy=LOOSE):
    """A round whose server is about to ask for this stage; (stage, name): who left before it."""
    found = Round(6, threshold=4, policy=policy, signed=signed)
    left = {}
    for before, name in gone:  # who leaves before a stage has not answered the one that precedes it
        left.setdefault(before, []).append(name)
    stages = ["advertise", "share", "mask", *(["confirm"] if signed else []), "unmask"]
    for now, following in itertools.pairwise(stages):
        if now == stage:
            break
        found.stage(gone=left.get(following, ()))
    return found


def lied(case):
    stage, code, signed, gone, policy, arrays = LIES[case]
    found = reached(stage, signed, gone, policy)
    honest = found.asked[ME]
    _, old = wire.decode(honest, FROM_SERVER, hs.Limits())
    made = {name: new(old) if callable(new) else new for name, new in arrays.items()}
    return found, honest, found.altered(honest, **made), code


def again(found, state, history):
    """The client from a state it wrote earlier, with this history."""
    people = identities(found.stats)
    how = {"policy": LOOSE, "history": history, "identity": people[ME]}
    return Client.from_arrays(state, ME, found.terms, found.stats[ME], **how)
