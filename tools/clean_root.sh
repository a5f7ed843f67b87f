#!/usr/bin/env bash
# Runs a command of ./dev in a new Debian 12 that has git and a shell alone, as a newcomer's machine does:
#   tools/clean_root.sh FOLDER [COMMAND [ARGS]]        by default: tools/clean_root.sh FOLDER test
# It gets a clone of what is committed, and what this machine is configured with to reach its package registries. Needs
# root and debootstrap. The folder is kept, so that a second run starts from what the first has installed and built.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
(($#)) || { sed -n '2,5s/^# \?//p' "$0" >&2; exit 2; }
root=$1
shift
if (($# == 0)); then set -- test; fi

if [[ ! -e $root/root/jerboa ]]; then
  archive=$(apt-get indextargets --format '$(RELEASE) $(SITE)' | awk '$1 == "bookworm" { print $2; exit }')
  debootstrap --variant=minbase --include=git,ca-certificates bookworm "$root" "$archive"
  for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt /etc/npmrc /usr/etc/npmrc "$HOME/.npmrc"; do
    if [[ -e $file ]]; then install -D -m 644 "$file" "$root/${file/#$HOME//root}"; fi
  done
  git clone --quiet --no-hardlinks "$source" "$root/root/jerboa"
fi
git -C "$root/root/jerboa" pull --quiet --ff-only "$source" HEAD

# Mounts of its own, which go when the command ends.
exec unshare --mount --pid --fork bash -c '
  mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --rbind /sys "$0/sys"
  exec chroot "$0" env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    bash -c "cd ~/jerboa && time ./dev \"\$@\"" dev "$@"' "$(cd "$root" && pwd)" "$@"
