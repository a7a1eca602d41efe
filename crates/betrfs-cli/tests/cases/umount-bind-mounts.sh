#!/bin/bash
# umount(8) with the helper of `betrfs install-helpers` unmounts bind mounts of files and directories, on the
# volume and elsewhere. Usage: CASE EMPTY-DIRECTORY (root). In its own mount name space, with an overlay on
# /usr/sbin.
set -u
B=$(readlink -f "$(command -v "${BETRFS:-betrfs}")")
D=$(readlink -f "${1:?usage: CASE EMPTY-DIRECTORY}")
[ -n "${IN_NAME_SPACE:-}" ] || IN_NAME_SPACE=1 exec unshare -m --propagation private bash "$0" "$@"
T="timeout 60"
mkdir "$D"/upper "$D"/work "$D"/mnt "$D"/dir && touch "$D"/file || exit 2
mount -t overlay overlay -o lowerdir=/usr/sbin,upperdir="$D"/upper,workdir="$D"/work /usr/sbin || exit 2
for type in betrfs fuse.betrfs fuseblk.betrfs; do ln -sf "$B" /usr/sbin/umount.$type; done
$T "$B" mkfs "$D"/volume 256M >/dev/null && $T "$B" mount "$D"/volume "$D"/mnt || exit 2
M=$D/mnt
echo a >"$M"/a; echo b >"$M"/b; mkdir "$M"/d "$M"/e
bad=0
try() {
    mount --bind "$1" "$2" || exit 2
    $T umount "$2" || { echo "umount of $2: exit code $?"; bad=1; }
    if findmnt "$2" >/dev/null; then echo "$2 is still mounted"; bad=1; umount -i "$2"; fi
}
try "$M"/a "$M"/b
try "$M"/d "$M"/e
try "$M"/a "$D"/file
try "$M"/d "$D"/dir
[ "$(cat "$M"/b)" = b ] || { echo "the volume was unmounted"; bad=1; }
$T umount "$M" || { bad=1; umount -l "$M"; }
exit $bad
