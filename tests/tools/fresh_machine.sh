#!/bin/sh
# Proves the package lists on a machine that has nothing: fresh_machine.sh FOLDER [--tests]
#
# Makes a minimal Debian 12 in FOLDER (debootstrap, from the mirror that apt uses here), puts what is committed into it,
# and runs `./penumbra ls` there, twice, then with --tests all of ./tests/run. As root; takes minutes and a gigabyte or
# two. FOLDER is left for a look; a second run with the same FOLDER starts over.
set -eu

folder=$1
want_tests=${2-}
root=$(cd "$(dirname "$0")/../.." && pwd)
mirror=http://deb.debian.org/debian

umount_all() {
  for mounted in "$folder/dev" "$folder/sys" "$folder/proc"; do
    if mountpoint -q "$mounted"; then umount -l "$mounted"; fi
  done
}

umount_all
rm -rf --one-file-system "$folder"
debootstrap --variant=minbase bookworm "$folder" "$mirror" >&2
trap umount_all EXIT
mount -t proc proc "$folder/proc"
mount -t sysfs sysfs "$folder/sys"
mount --rbind /dev "$folder/dev"
mount --make-rslave "$folder/dev"
cp /etc/resolv.conf "$folder/etc/resolv.conf"

mkdir "$folder/penumbra"
git -C "$root" archive HEAD | tar -x -C "$folder/penumbra"

inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C chroot "$folder" "$@"; }

inside sh -c 'cd /penumbra && ./penumbra ls'
inside sh -c 'cd /penumbra && ./penumbra ls -l runtime >/tmp/first && ls -l runtime >/tmp/second && diff /tmp/first /tmp/second'
echo "fresh_machine: ./penumbra ls works from nothing"
if [ "$want_tests" = --tests ]; then
  inside sh -c 'cd /penumbra && ./tests/run'
fi
