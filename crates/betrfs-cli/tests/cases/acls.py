#!/usr/bin/env python3
"""Access control lists (acl(5)), as tables: whom they let do what, what new objects inherit, how lists and modes follow
each other, and what is no list. Run as root."""
import ctypes, errno, os, stat, struct, sys

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
TAGS = {"u": 2, "g": 8, "m": 0x10, "o": 0x20}
NOBODY = 0xffffffff
libc = ctypes.CDLL(None)
mount = sys.argv[1]
stage = f"{mount}/acls.{os.getpid()}"
bad = 0


def check(what, found, right):
    global bad
    if found != right:
        bad += 1
        print(f"{what}:\n  is    {found}\n  right {right}")

def blob(text):
    """The attribute of a list such as `u::rwx,u:5:r-x,g::r--,m::r-x,o::---`."""
    value = struct.pack("<I", 2)
    for entry in text.split(","):
        tag, name, perm = entry.split(":")
        number = TAGS[tag] if name or tag in "mo" else TAGS[tag] // 2
        value += struct.pack("<HHI", number, bits(perm), int(name) if name else NOBODY)
    return value

def bits(perm): return sum(bit for bit, letter in zip((4, 2, 1), perm) if letter != "-")
def letters(perm): return "".join(letter if perm & bit else "-" for bit, letter in zip((4, 2, 1), "rwx"))

def text(path, kind):
    try: value = os.getxattr(path, kind, follow_symlinks=False)
    except OSError as error: return errno.errorcode[error.errno] if error.errno != errno.ENODATA else None
    names = {1: "u", 2: "u", 4: "g", 8: "g", 0x10: "m", 0x20: "o"}
    entries = struct.iter_unpack("<HHI", value[4:])
    return ",".join(f"{names[tag]}:{who if who != NOBODY else ''}:{letters(perm)}" for tag, perm, who in entries)

def mode(path): return oct(stat.S_IMODE(os.lstat(path).st_mode))[2:]
def state(path): return mode(path), text(path, ACCESS), text(path, DEFAULT)

def as_user(user, groups, act):
    """What `act` returns (a small number) when a user does it."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups(groups[1:]); os.setresgid(*[groups[0]] * 3); os.setresuid(*[user] * 3)
            os._exit(act() or 0)
        except OSError as error: os._exit(error.errno)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def tried(act):
    """The name of the error, or None."""
    try: act()
    except OSError as error: return errno.errorcode[error.errno]

def put(path, kind, value): os.setxattr(path, kind, blob(value), follow_symlinks=False)


# Lists of a file of user 1000 and group 100; users, their groups, and what they are let do.
LISTS = [
    ("u::rw-,g::r--,o::---", [(1000, (9,), "rw-"), (7, (100,), "r--"), (7, (9, 100), "r--"), (7, (9,), "---")]),
    ("u::---,g::rwx,o::rwx", [(1000, (100,), "---"), (7, (100,), "rwx"), (7, (9,), "rwx")]),
    ("u::r--,u:7:rw-,g::---,m::rw-,o::---", [(7, (9,), "rw-"), (8, (9,), "---"), (1000, (9,), "r--"), (7, (100,), "rw-")]),
    # The mask bounds users, the owning group and groups, but neither the owner nor the others.
    ("u::rwx,u:7:rwx,g::rwx,g:50:rwx,m::r-x,o::rwx",
     [(1000, (9,), "rwx"), (7, (9,), "r-x"), (8, (100,), "r-x"), (8, (50,), "r-x"), (8, (9,), "rwx")]),
    ("u::rwx,u:7:rwx,g::rwx,m::-w-,o::r--", [(7, (9,), "-w-"), (8, (100,), "-w-"), (8, (9,), "r--")]),
    # With an empty mask Linux asks for no list: the owning group has nothing, all others what others have.
    ("u::rwx,u:7:rwx,g::rwx,m::---,o::r--", [(7, (9,), "r--"), (8, (100,), "---"), (8, (9,), "r--")]),
    # A user's entry counts, whatever groups and others would give; so does a group's, whatever others would.
    ("u::rwx,u:7:---,g::rwx,m::rwx,o::rwx", [(7, (100,), "---"), (8, (100,), "rwx")]),
    ("u::rwx,g::rwx,g:50:---,m::rwx,o::rwx", [(7, (50,), "---"), (7, (50, 100), "rwx"), (7, (9,), "rwx")]),
    ("u::rwx,g::---,g:50:r--,g:51:-w-,m::rwx,o::--x",
     [(7, (50,), "r--"), (7, (51,), "-w-"), (7, (9, 50, 51), "rw-"), (7, (9,), "--x"), (7, (100,), "---")]),
    ("u::rwx,g::r--,m::rwx,o::---", [(7, (100,), "r--"), (7, (9,), "---")]),
    # Root reads and writes all, and executes what anybody may.
    ("u::---,u:0:---,g::---,m::---,o::---", [(0, (0,), "rw-"), (7, (9,), "---")]),
    ("u::---,u:7:--x,g::---,m::--x,o::---", [(0, (0,), "rwx"), (7, (9,), "--x")]),
]

def judged():
    path = f"{stage}/judged"
    for number, (acl, users) in enumerate(LISTS):
        with open(path, "wb") as file: file.write(b"#!/bin/true\n")
        os.chown(path, 1000, 100); put(path, ACCESS, acl)
        for user, groups, right in users:
            def let():
                def opens(how): return tried(lambda: os.close(os.open(path, how))) is None
                return 4 * opens(os.O_RDONLY) + 2 * opens(os.O_WRONLY) + os.access(path, os.X_OK)
            check(f"{acl} for {user} in {groups}", letters(as_user(user, groups, let)), right)
        os.unlink(path)
    # What is wanted at once must be one group's.
    both = f"{stage}/both"
    open(both, "wb").close(); os.chown(both, 1000, 100); put(both, ACCESS, "u::rwx,g::---,g:50:r--,g:51:-w-,m::rwx,o::---")
    check("two groups for reading and writing", as_user(7, (9, 50, 51), lambda: os.close(os.open(both, os.O_RDWR))), errno.EACCES)
    # Directories: to search, to list, to make entries, and the sticky bit.
    d = f"{stage}/dir"
    os.mkdir(d); open(f"{d}/f", "wb").close(); os.chown(d, 1000, 100)
    put(d, ACCESS, "u::rwx,u:5:--x,u:6:r--,u:7:rwx,g::---,m::rwx,o::---")
    for user, lists, finds, makes in [(5, "EACCES", None, "EACCES"), (6, None, "EACCES", "EACCES"), (7, None, None, None), (8, "EACCES", "EACCES", "EACCES")]:
        def number(act): return lambda: getattr(errno, tried(act) or "", 0)
        acts = (lambda: os.listdir(d), lambda: os.stat(f"{d}/f"), lambda: os.mkdir(f"{d}/by-{user}"))
        found = [as_user(user, (9,), number(act)) for act in acts]
        check(f"a directory for {user}", [errno.errorcode.get(one) for one in found], [lists, finds, makes])
    os.chmod(d, 0o1770)
    check("another's entry in a sticky directory", as_user(7, (9,), lambda: os.unlink(f"{d}/f")), errno.EPERM)


# Default lists (None: there is none), the umask, what is made with which mode, and its mode and lists then.
LONG = "u::rwx," + ",".join(f"u:{i}:r-x" for i in range(60)) + ",g::r-x,m::r-x,o::r--"
MADE = [
    (None, 0o022, "file", 0o666, "644", None), (None, 0o077, "dir", 0o777, "700", None), (None, 0o027, "fifo", 0o666, "640", None),
    (None, 0, "file", 0o4755, "4755", None), (None, 0o022, "unnamed", 0o666, "644", None), (None, 0o777, "file", 0o777, "0", None),
    ("u::rwx,g::r-x,o::---", 0o077, "file", 0o666, "640", None), ("u::rwx,g::rwx,o::rwx", 0o077, "dir", 0o777, "777", None),
    ("u::r--,g::r--,o::r--", 0, "file", 0o222, "0", None),
    ("u::rwx,u:7:rwx,g::r-x,m::rwx,o::---", 0o077, "file", 0o666, "660", "u::rw-,u:7:rwx,g::r-x,m::rw-,o::---"),
    ("u::rwx,u:7:rwx,g::r-x,m::rwx,o::---", 0o077, "dir", 0o755, "750", "u::rwx,u:7:rwx,g::r-x,m::r-x,o::---"),
    ("u::rwx,u:7:rwx,g::r-x,m::rwx,o::r-x", 0, "dir", 0o1777, "1775", "u::rwx,u:7:rwx,g::r-x,m::rwx,o::r-x"),
    ("u::rwx,g::r-x,g:50:rwx,m::rwx,o::---", 0o077, "fifo", 0o644, "640", "u::rw-,g::r-x,g:50:rwx,m::r--,o::---"),
    ("u::rwx,g::rwx,m::rwx,o::---", 0, "file", 0o600, "600", "u::rw-,g::rwx,m::---,o::---"),
    ("u::rwx,u:7:rwx,g::r-x,m::rwx,o::---", 0o077, "unnamed", 0o664, "660", "u::rw-,u:7:rwx,g::r-x,m::rw-,o::---"),
    ("u::rwx,u:7:rwx,g::---,m::rwx,o::---", 0o077, "link", 0, "777", None),
    (LONG, 0o022, "file", 0o666, "644", LONG.replace("u::rwx", "u::rw-").replace("m::r-x", "m::r--")), (LONG, 0o022, "dir", 0o777, "754", LONG),
]

def made():
    for number, (default, umask, kind, how, right, access) in enumerate(MADE):
        parent = f"{stage}/in.{number}"
        os.mkdir(parent)
        if default: put(parent, DEFAULT, default)
        check(f"{default}: the directory's own mode", mode(parent), "755")
        path, old = f"{parent}/new", os.umask(umask)
        if kind == "file": os.close(os.open(path, os.O_CREAT | os.O_WRONLY, how))
        elif kind == "dir": os.mkdir(path, how)
        elif kind == "fifo": os.mkfifo(path, how)
        elif kind == "link": os.symlink("x", path)
        else:
            fd = os.open(parent, os.O_TMPFILE | os.O_RDWR, how)
            AT_FDCWD, AT_SYMLINK_FOLLOW = -100, 0x400
            named = libc.linkat(AT_FDCWD, f"/proc/self/fd/{fd}".encode(), AT_FDCWD, path.encode(), AT_SYMLINK_FOLLOW)
            check("a file without a name gets one", named, 0); os.close(fd)
        os.umask(old)
        # A symbolic link has no list, and says so with another error.
        found = (mode(path), text(path, ACCESS) if kind != "link" else None, text(path, DEFAULT) if kind != "link" else None)
        check(f"{kind} {how:o} under {default}, umask {umask:o}", found, (right, access, default if kind == "dir" else None))
    # What is inherited counts, and goes on.
    deep = f"{stage}/deep"
    os.mkdir(deep, 0o700); os.chmod(stage, 0o711)
    put(deep, ACCESS, "u::rwx,u:7:r-x,g::---,m::r-x,o::---"); put(deep, DEFAULT, "u::rwx,u:7:r-x,g::---,m::r-x,o::---")
    os.makedirs(f"{deep}/a/b"); open(f"{deep}/a/b/f", "wb").close()
    for user, right in [(7, 0), (8, errno.EACCES)]:
        check(f"a file three levels below, for {user}", as_user(user, (9,), lambda: os.close(os.open(f"{deep}/a/b/f", os.O_RDONLY))), right)


FULL = "u::rwx,u:7:rwx,g::r-x,m::rwx,o::r--"
# Steps on a file or directory: the call, and mode and list after it.
STEPS = [
    ("list", FULL, "774", FULL), ("chmod", 0o640, "640", "u::rw-,u:7:rwx,g::r-x,m::r--,o::---"),
    ("chmod", 0o777, "777", "u::rwx,u:7:rwx,g::r-x,m::rwx,o::rwx"), ("list", "u::r--,g::-w-,o::--x", "421", None),
    ("chmod", 0o755, "755", None), ("list", "u::rwx,g::rwx,m::r--,o::---", "740", "u::rwx,g::rwx,m::r--,o::---"),
    ("chmod", 0o770, "770", "u::rwx,g::rwx,m::rwx,o::---"), ("list", FULL, "774", FULL),
    ("remove", None, "774", None), ("remove", None, "774", None), ("list", "u::rwx,g::rwx,g:3:r--,m::rwx,o::---", "770", "u::rwx,g::rwx,g:3:r--,m::rwx,o::---"),
    ("list", "u::rw-,u:9:r--,g::---,m::---,o::---", "600", "u::rw-,u:9:r--,g::---,m::---,o::---"), ("list", LONG, "754", LONG),
    ("chmod", 0o700, "700", LONG.replace("m::r-x,o::r--", "m::---,o::---")), ("list", "u::rwx,g::---,o::---", "700", None),
]

def followed():
    for kind in ("file", "dir"):
        path = f"{stage}/steps.{kind}"
        if kind == "file": open(path, "wb").close()
        else: os.mkdir(path)
        for step, (call, value, right, access) in enumerate(STEPS):
            before = os.stat(path).st_ctime_ns
            if call == "list": put(path, ACCESS, value)
            elif call == "chmod": os.chmod(path, value)
            else: os.removexattr(path, ACCESS)
            check(f"{kind}, step {step}: {call} {value}", state(path), (right, access, None))
            names = os.listxattr(path)
            check(f"{kind}, step {step}: the names", names, [ACCESS] if access else [])
        if kind == "dir":
            put(path, DEFAULT, FULL); os.chmod(path, 0o711)
            check("a default list changes no mode, nor does a mode change it", state(path), ("711", None, FULL))
            os.removexattr(path, DEFAULT); os.removexattr(path, DEFAULT)
            check("no default list any more", state(path), ("711", None, None))
    # The set-group-id bit falls where chmod(2) would clear it.
    for user, groups, right in [(1000, (9,), "774"), (1000, (9, 100), "2774"), (0, (0,), "2774")]:
        path = f"{stage}/set-group-id"
        open(path, "wb").close(); os.chown(path, 1000, 100); os.chmod(path, 0o2755)
        check(f"a list by {user} in {groups}", as_user(user, groups, lambda: put(path, ACCESS, FULL)), 0)
        check(f"the set-group-id bit after a list by {user} in {groups}", state(path), (right, FULL, None))
        os.unlink(path)
    # Others' lists are not theirs to set, and everybody may see them.
    path = f"{stage}/owned"
    open(path, "wb").close(); os.chown(path, 1000, 100); put(path, ACCESS, FULL)
    check("a list by another user", as_user(7, (9,), lambda: put(path, ACCESS, FULL)), errno.EPERM)
    check("its removal by another user", as_user(7, (9,), lambda: os.removexattr(path, ACCESS)), errno.EPERM)
    check("its reading by another user", as_user(8, (9,), lambda: text(path, ACCESS) != FULL), 0)
    # A new owner, new contents, another name and a new place change no list.
    os.chown(path, 1001, 101); os.truncate(path, 10); os.link(path, f"{path}.2"); os.unlink(path); os.rename(f"{path}.2", f"{path}.3")
    check("a list after other changes", state(f"{path}.3"), ("774", FULL, None))


WRONG = [
    "u::rwx,u:7:rwx,g::r-x,o::r--", "u::rwx,g::r-x", "g::r-x,o::r--", "u::rwx,o::r--", "g::r-x,u::rwx,o::r--", "u::rwx,g::r-x,o::r--,m::rwx",
    "u::rwx,u::rwx,g::r-x,o::r--", "u::rwx,g::r-x,u:7:r--,m::rwx,o::r--", "u::rwx,g::r-x,m::rwx,m::rwx,o::r--", "u::rwx,g:7:r-x,g::r--,m::rwx,o::r--",
]

def refused():
    file, d, link = f"{stage}/r.file", f"{stage}/r.dir", f"{stage}/r.link"
    open(file, "wb").close(); os.mkdir(d); os.symlink("r.file", link); os.chmod(file, 0o640)
    put(file, ACCESS, FULL)
    raw = lambda path, kind, value: tried(lambda: os.setxattr(path, kind, value, follow_symlinks=False))
    for acl in WRONG:
        for path, kind in ((file, ACCESS), (d, ACCESS), (d, DEFAULT)):
            check(f"{acl} as {kind}", raw(path, kind, blob(acl)), "EINVAL")
    good = blob(FULL)
    for what, value in [("version 1", b"\1" + good[1:]), ("version 3", b"\3" + good[1:]), ("cut off", good[:-1]), ("a byte more", good + b"\0"), ("two bytes", b"\2\0"), ("permissions", good[:6] + b"\x0f" + good[7:]), ("a tag", good[:4] + b"\x40" + good[5:])]:
        check(f"{what}", raw(file, ACCESS, value) in ("EINVAL", "ENOTSUP"), True)
    check("nothing has changed", state(file), ("774", FULL, None))
    check("a default list of a file", raw(file, DEFAULT, good), "EACCES")
    check("a list of a symbolic link", raw(link, ACCESS, good), "ENOTSUP")
    check("a list of nobody removes it", (raw(file, ACCESS, good[:4]), state(file)), (None, ("774", None, None)))


os.umask(0o022)
os.mkdir(stage, 0o755)
try:
    for part in (judged, made, followed, refused): part()
finally: os.system(f"rm -rf '{stage}'")
sys.exit(bad != 0)
