#!/bin/bash
# An access time seen by stat(1) survives a clean unmount. Needs BETRFS (the command) to remount; finds the
# volume by findmnt.
B=${BETRFS:-betrfs}; M=$1; V=$(findmnt -n -o SOURCE -M "$M"); case $V in /dev/loop*) V=$(losetup -n -O BACK-FILE "$V");; esac; f=$M/atime-remount.$$
echo x > "$f"; sleep 1.1; cat "$f" >/dev/null; a=$(stat -c %x "$f")
case $(findmnt -n -o FSTYPE -M "$M") in
  fuse.betrfs | fuseblk.betrfs) "$B" umount "$M" && "$B" mount "$V" "$M" ;;
  *) umount "$M" && mount "$V" "$M" ;;
esac || exit 2
b=$(stat -c %x "$f"); rm -f "$f"; echo "read at $a, after the remount $b"; [ "$a" = "$b" ]
