#!/bin/sh
# Puts the programs of a build directory where the Mender client, the app
# module and people look for them; with --remove takes them away again.
# Configuration files are written only where there are none, and never removed.
# Called by `make install` and `make uninstall`, which know the directories.
set -eu

here=$(dirname "$0")
from=$1 modules=$2 submodules=$3 bin=$4 conf=$5 man=$6 completions=$7 units=$8

# name:directory of each program.
places="app:$modules docker-compose:$submodules k8s:$submodules mender-app:$bin app-gen:$bin"

if [ "$from" = --remove ]; then
	for place in $places; do
		rm -f "${place#*:}/${place%%:*}"
	done
	for page in "$here"/man/*.[1-8]; do
		[ -e "$page" ] || continue
		rm -f "$man/man${page##*.}/$(basename "$page")"
	done
	rm -f "$completions/mender-app" "$completions/app-gen" "$completions/k8s"
	for unit in "$here"/systemd/*.service; do
		unit=$(basename "$unit")
		rm -f "$units/$unit" "$units/multi-user.target.wants/$unit"
	done
	rmdir "$units/multi-user.target.wants" "$submodules" 2>/dev/null || true
	exit 0
fi

for place in $places; do
	program=${place%%:*} dir=${place#*:}
	[ -e "$from/$program" ] || continue
	install -d "$dir"
	# install(1) writes a new file and renames nothing: remove first, so that
	# a program that is running keeps the file it was started from.
	rm -f "$dir/$program"
	install -m 755 "$from/$program" "$dir/$program"
done

install -d -m 755 "$conf"
for sample in "$here"/etc/*.conf; do
	[ -e "$sample" ] || continue
	name=$(basename "$sample")
	# A configuration file may get a password.
	[ -e "$conf/$name" ] || install -m 600 "$sample" "$conf/$name"
done

for page in "$here"/man/*.[1-8]; do
	[ -e "$page" ] || continue
	install -d "$man/man${page##*.}"
	install -m 644 "$page" "$man/man${page##*.}/"
done

# The link enables the unit, as distributions do for units of their own; who
# does not want it masks it. Without systemd the files do no harm.
if [ -e "$bin/mender-app" ]; then
	install -d "$units/multi-user.target.wants"
	for unit in "$here"/systemd/*.service; do
		name=$(basename "$unit")
		sed "s|@bindir@|${bindir:-$bin}|" "$unit" >"$units/$name"
		chmod 644 "$units/$name"
		ln -sf "../$name" "$units/multi-user.target.wants/$name"
	done
fi

# A program for another processor cannot print its completions here: no harm.
# The name docker-compose is Docker's own on many machines: it is left to that.
for program in mender-app app-gen k8s; do
	[ -x "$from/$program" ] || continue
	if text=$("$from/$program" completion bash 2>/dev/null) && [ -n "$text" ]; then
		install -d "$completions"
		printf '%s\n' "$text" >"$completions/$program"
	fi
done
