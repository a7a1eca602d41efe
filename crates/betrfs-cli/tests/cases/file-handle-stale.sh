#!/bin/bash
# A handle of name_to_handle_at(2) must open the file later, also when the kernel has forgotten it (here:
# after a remount; `echo 2 > /proc/sys/vm/drop_caches` without one gives the same). Exports by NFS need this.
. "$(dirname "$0")/lib.sh"
vol=$(field volume); h=$(mktemp)
cat > $h.py <<'P'
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True); what, m, store = sys.argv[1:]
if what == "take":
    os.makedirs(m + "/handle-case", exist_ok=True); open(m + "/handle-case/f", "w").write("x")
    buf = ctypes.create_string_buffer(136); struct.pack_into("I", buf, 0, 128); mid = ctypes.c_int()
    if libc.name_to_handle_at(-100, (m + "/handle-case/f").encode(), buf, ctypes.byref(mid), 0): sys.exit(3)
    open(store, "wb").write(buf.raw)
else:
    buf = ctypes.create_string_buffer(open(store, "rb").read())
    fd = libc.open_by_handle_at(os.open(m, os.O_RDONLY), buf, os.O_RDONLY)
    if fd < 0: print("open_by_handle_at:", os.strerror(ctypes.get_errno())); sys.exit(1)
    sys.exit(os.read(fd, 2) != b"x")
P
$T python3 $h.py take "$M" $h || exit 3
$T "$B" umount "$M" || exit 3; again "$vol"
$T python3 $h.py open "$M" $h; rc=$?
rm -rf "$M/handle-case" $h $h.py; exit $rc
