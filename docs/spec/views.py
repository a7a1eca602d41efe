#!/usr/bin/env python3
"""Model of views and of the conflicts of transactions, against a map that keeps every version.

A dictionary is an active memtable, frozen memtables and a tree of two levels whose nodes have versions. A view is a number
`s` and, for each dictionary, an epoch. The rules that the engine follows:

* An epoch ends with each arrival of a memtable and each change of ranges. The engine also ends one so that versions of
  nodes stay as they are for somebody who looks at them; that changes nothing for readers, and is not modelled.
* A node version stays iff a live view names an epoch in which it was current at the end: epochs [born, died).
* The end of an epoch that a live view names keeps the root; a memtable that arrives stays while a live view began in or after it.
* A memtable keeps an entry that is covered or overwritten iff a live view lies between it and its successor, and its set of
  range deletes likewise.
* A reader of a view takes memtables that arrived at the end of its epoch or later, those that did not arrive, and the tree
  as of the end of its epoch; of all of them only what is not newer than `s`.
* A transaction conflicts iff an active, frozen or recent memtable, or a recent change of ranges, is newer than `s` on what
  it has read.

`--mutants` plants bugs one after the other; each has to be found.
Usage: views.py [--histories N] [--seed S] [--mutants]
"""
import argparse
import random

KEYS, DICTS = range(8), range(2)
MUTANTS = ["visible-early", "begin-within-batch", "no-history", "ranges-not-copied", "epoch-goes-on", "versions-dropped",
           "arrived-dropped", "root-not-kept", "freed-unread", "wrong-prune", "recent-without-clones", "read-without-end"]


class Memtable:
    """Entries by key, oldest first: (number, kind, value) with kind in put, add, covered. Sets of range deletes by number."""

    def __init__(self):
        self.entries, self.ranges, self.first, self.last = {}, [(0, [])], None, 0

    def change(self, m, change, views, bug):
        self.first, self.last = self.first or m, m
        kind, lo, hi, value = change
        if kind == "delete":
            for key in [k for k in self.entries if lo <= k < hi]:
                self.push(key, (m, "covered", None), views, bug)
            if bug != "ranges-not-copied" and any(self.ranges[-1][0] <= s < m for s in views):
                self.ranges.append((m, self.ranges[-1][1] + [(lo, hi)]))
            else:
                self.ranges[-1] = (self.ranges[-1][0] if bug == "ranges-not-copied" else m, self.ranges[-1][1] + [(lo, hi)])
        else:
            base = self.get(lo, m)
            if kind == "add" and base[0] == "value":
                kind, value = "put", base[1] + value
            self.push(lo, (m, kind, value), views, bug)

    def push(self, key, new, views, bug):
        chain = self.entries.setdefault(key, []) + [new]
        kept = []
        for at, entry in enumerate(chain):
            # What takes its place: the next put or covered; additions stand beside each other.
            until = next((later[0] for later in chain[at + 1:] if later[1] != "add"), None)
            watched = views[-1:] if bug == "wrong-prune" else views
            if until is None or any(entry[0] <= s < until for s in ([] if bug == "no-history" else watched)):
                kept.append(entry)
        self.entries[key] = kept
        if all(entry[1] == "covered" for entry in kept):
            del self.entries[key]

    def get(self, key, s):
        """("value", v): final. ("add", n): n on top of what is older. Ranges are older than points over them."""
        more = 0
        for m, kind, value in reversed([e for e in self.entries.get(key, []) if e[0] <= s]):
            if kind == "put":
                return "value", value + more
            if kind == "covered":
                break
            more += value
        ranges = [r for m, r in self.ranges if m <= s][-1]
        return ("value", more) if any(lo <= key < hi for lo, hi in ranges) else ("add", more)

    def newer(self, lo, hi, s):
        return any(lo <= k < hi and e[-1][0] > s for k, e in self.entries.items()) \
            or self.ranges[-1][0] > s and any(a < hi and lo < b for a, b in self.ranges[-1][1])


class Dict:
    """Root 0 (pending messages by key, children by bound) over leaves. A version never changes."""

    def __init__(self):
        self.active, self.frozen, self.arrived = Memtable(), [], []
        self.epoch, self.root, self.next_id = 0, 0, 2
        self.nodes = {0: (0, {"pending": {}, "children": [(0, 1)]}), 1: (0, {})}   # id -> (born, contents)
        self.old, self.roots = {}, {}

    def replace(self, id, new, live):
        born, contents = self.nodes.pop(id)
        if any(born <= e < self.epoch for e in live):
            self.old.setdefault(id, []).append((self.epoch, born, contents))
        if new is not None:
            self.nodes[id] = (self.epoch, new)

    def end_epoch(self, live, bug):
        if bug == "epoch-goes-on":
            return
        if self.epoch in live and bug != "root-not-kept":
            self.roots[self.epoch] = self.root
        self.epoch += 1

    def version(self, id, e):
        for died, _, contents in self.old.get(id, []):
            if died > e:
                return contents
        return self.nodes[id][1] if id in self.nodes else None

    def leaf_of(self, root, key):
        return [id for bound, id in root["children"] if bound <= key][-1]

    def tree_get(self, key, e):
        root = self.version(self.roots.get(e, self.root), e)
        if root is None:
            return "lost"
        base = self.version(self.leaf_of(root, key), e)
        if base is None:
            return "lost"
        value, pending = base.get(key, 0), root["pending"].get(key)
        if pending:
            value = pending[1] if pending[0] == "value" else value + pending[1]
        return value


class Env:
    def __init__(self, bug):
        self.dicts, self.visible, self.next, self.bug = [Dict() for _ in DICTS], 0, 1, bug
        self.views, self.recent = {}, []           # id -> (s, epochs)
        self.ends = {0}                            # the last numbers of batches
        self.truth = [{k: [(0, 0)] for k in KEYS} for _ in DICTS]

    def live(self, d):
        return [] if self.bug == "versions-dropped" else [epochs[d] for _, epochs in self.views.values()]

    def sees(self):
        return sorted(s for s, _ in self.views.values())

    def commit(self, batch):
        first = self.next
        for d, change in batch:
            self.dicts[d].active.change(self.next, change, self.sees(), self.bug)
            self.record(d, change, self.next)
            self.next += 1
            if self.bug in ("visible-early", "begin-within-batch"):
                self.visible = self.next - 1 if self.bug == "visible-early" else self.visible
                yield
        assert first < self.next
        self.visible = self.next - 1
        self.ends.add(self.visible)

    def record(self, d, change, m):
        kind, lo, hi, value = change
        for key in range(lo, hi) if kind == "delete" else [lo]:
            old = self.truth[d][key][-1][1]
            self.truth[d][key].append((m, 0 if kind == "delete" else old + value if kind == "add" else value))

    def true(self, d, key, s):
        return [v for m, v in self.truth[d][key] if m <= s][-1]

    def read(self, d, key, s, e):
        dict, more = self.dicts[d], 0
        arrived = [m for ended, m in dict.arrived if ended >= e]
        for table in [dict.active] + dict.frozen[::-1] + arrived[::-1]:
            kind, value = table.get(key, s)
            more += value
            if kind == "value":
                return more
        below = dict.tree_get(key, e)
        return below if below == "lost" else below + more

    def arrive(self, d):
        dict, live = self.dicts[d], self.live(d)
        table = dict.frozen.pop(0)
        dict.end_epoch(live, self.bug)
        if self.bug != "arrived-dropped" and any(s >= table.first for s in self.sees()):
            dict.arrived.append((dict.epoch - 1, table))
        self.recent.append((d, table))
        root = dict.nodes[dict.root][1]
        pending = {}
        for key in KEYS:
            kind, value = table.get(key, table.last)
            old = root["pending"].get(key, ("add", 0))
            pending[key] = (kind, value) if kind == "value" else (old[0], old[1] + value)
        dict.replace(dict.root, {**root, "pending": pending}, live)

    def flush(self, d, lo):
        dict, live = self.dicts[d], self.live(d)
        root = dict.nodes[dict.root][1]
        id = dict.leaf_of(root, lo)
        keys = [k for k in KEYS if dict.leaf_of(root, k) == id]
        leaf = dict.nodes[id][1]
        new = {k: dict.tree_get(k, dict.epoch) for k in keys}
        dict.replace(id, {**leaf, **new}, live)
        dict.replace(dict.root, {**root, "pending": {k: p for k, p in root["pending"].items() if k not in keys}}, live)

    def split(self, d, key):
        """The half of a leaf goes to a new one, in a new root with another id; the old leaf may be freed unread."""
        dict, live = self.dicts[d], self.live(d)
        root = dict.nodes[dict.root][1]
        id = dict.leaf_of(root, key)
        leaf, new, top = dict.nodes[id][1], dict.next_id, dict.next_id + 1
        dict.next_id += 2
        bound = [b for b, other in root["children"] if other == id][0]
        children = [c for c in root["children"] if c[1] != id] + [(bound, new)]
        dict.nodes[new] = (dict.epoch, dict_of(leaf))
        dict.replace(id, None, [] if self.bug == "freed-unread" else live)
        dict.nodes[top] = (dict.epoch, {**root, "children": sorted(children)})
        dict.replace(dict.root, None, live)
        dict.root = top

    def change_ranges(self, d, lo, hi, to):
        """A clone of [lo, hi) onto [to, ..): with all memtables in the tree, as a new version of the root."""
        dict, live = self.dicts[d], self.live(d)
        if not dict.active.first is None:
            dict.frozen.append(dict.active)
            dict.active = Memtable()
        while dict.frozen:
            self.arrive(d)
        dict.end_epoch(live, self.bug)
        root = dict.nodes[dict.root][1]
        copied = {to + k - lo: ("value", dict.tree_get(k, dict.epoch)) for k in range(lo, hi) if to + k - lo in KEYS}
        dict.replace(dict.root, {**root, "pending": {**root["pending"], **copied}}, live)
        for key, (_, value) in copied.items():
            self.truth[d][key].append((self.next, value))
        if self.bug != "recent-without-clones":
            self.recent.append((d, (self.next, to, min(to + hi - lo, len(KEYS)))))
        self.next += 1
        self.visible = self.next - 1
        self.ends.add(self.visible)

    def begin(self, id):
        self.views[id] = (self.visible, [d.epoch for d in self.dicts])

    def end(self, id):
        del self.views[id]
        for d, dict in enumerate(self.dicts):
            live = self.live(d)
            for node in list(dict.old):
                dict.old[node] = [v for v in dict.old[node] if any(v[1] <= e < v[0] for e in live)]
            dict.roots = {e: root for e, root in dict.roots.items() if e in live}
            dict.arrived = [a for a in dict.arrived if any(s >= a[1].first for s in self.sees())]
        if not self.views:
            assert all(not any(d.old.values()) and not d.roots and not d.arrived for d in self.dicts), "a trace is left"
            self.recent = []

    def conflicts(self, d, lo, hi, s):
        dict = self.dicts[d]
        hi = lo + 1 if self.bug == "read-without-end" else hi
        tables = [dict.active] + dict.frozen + [t for at, t in self.recent if at == d and isinstance(t, Memtable)]
        ranges = [t for at, t in self.recent if at == d and not isinstance(t, Memtable)]
        return any(t.newer(lo, hi, s) for t in tables) or any(m > s and a < hi and lo < b for m, a, b in ranges)


def dict_of(leaf):
    return {k: v for k, v in leaf.items()}


def run(seed, bug):
    """One history; the first law that it breaks, or None."""
    rng, env = random.Random(seed), Env(bug)
    for step in range(60):
        d = rng.choice(DICTS)
        lo, hi = sorted(rng.sample(range(len(KEYS) + 1), 2))
        action = rng.choice(["commit"] * 5 + ["freeze", "arrive", "arrive", "flush", "split", "ranges", "begin", "begin", "end"])
        if action == "commit":
            batch = []
            for _ in range(rng.randint(1, 4)):
                kind = rng.choice(["put", "put", "add", "add", "delete"])
                batch.append((rng.choice(DICTS), (kind, lo, hi, rng.randint(1, 9))))
            for _ in env.commit(batch):
                if rng.random() < 0.3 and len(env.views) < 4:
                    env.begin(("half", step))
        elif action == "freeze" and env.dicts[d].active.first is not None:
            env.dicts[d].frozen.append(env.dicts[d].active)
            env.dicts[d].active = Memtable()
        elif action == "arrive" and env.dicts[d].frozen:
            env.arrive(d)
        elif action == "flush":
            env.flush(d, lo)
        elif action == "split":
            env.split(d, lo)
        elif action == "ranges":
            env.change_ranges(d, lo, hi, rng.choice(KEYS))
        elif action == "begin" and len(env.views) < 4:
            env.begin(step)
        elif action == "end" and env.views:
            env.end(rng.choice(list(env.views)))
        for id, (s, epochs) in env.views.items():
            if s not in env.ends:
                return f"step {step}: a view sees a part of a batch"
            for at in DICTS:
                for key in KEYS:
                    found, wanted = env.read(at, key, s, epochs[at]), env.true(at, key, s)
                    if found != wanted:
                        return f"step {step}, view {id} at {s}: dictionary {at}, key {key}: {found} for {wanted}"
                changed = any(m > s for k in range(lo, hi) for m, _ in env.truth[at][k])
                if changed and not env.conflicts(at, lo, hi, s):
                    return f"step {step}, view {id} at {s}: [{lo}, {hi}) has changed, and there is no conflict"
        for at in DICTS:
            for key in KEYS:
                if env.read(at, key, env.next, env.dicts[at].epoch) != env.true(at, key, env.next):
                    return f"step {step}: the newest of dictionary {at}, key {key}"
    for id in list(env.views):
        env.end(id)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--histories", type=int, default=400)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--mutants", action="store_true")
    options = parser.parse_args()
    seeds = [options.seed] if options.seed is not None else range(options.histories)
    for seed in seeds:
        broken = run(seed, None)
        if broken:
            raise SystemExit(f"seed {seed}: {broken}")
    print(f"{len(seeds)} histories hold")
    if options.mutants:
        for bug in MUTANTS:
            found = None
            for seed in range(options.histories):
                try:
                    found = run(seed, bug)
                except AssertionError as broken:
                    found = str(broken)
                if found:
                    print(f"{bug}: history {seed}: {found}")
                    break
            if not found:
                raise SystemExit(f"{bug} was not found")


if __name__ == "__main__":
    main()
