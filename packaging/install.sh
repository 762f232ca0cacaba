#!/bin/sh
# Installs the programs of a build directory where the Mender client, the app
# module and users look for them; --remove removes them again. It writes a
# configuration file only if there is none, and never removes one. The variable
# programs names the programs to install, together with their files, and more the
# sub-modules of examples/ to install beside them. `make install` and `make uninstall`
# call this with the directories.
set -eu

here=$(dirname "$0")
from=$1 modules=$2 submodules=$3 bin=$4 conf=$5 man=$6 completions=$7 units=$8 zsh=$9 fish=${10}

# Beside modules/v3 the Mender client looks for the scripts of its inventory.
inventory=${modules%/modules/v3}/inventory

# Beside its units systemd looks for the groups to make, and for what explains the entries
# of its journal.
sysusers=${units%/systemd/system}/sysusers.d
catalog=${units%/system}/catalog

# What the licences of the programs and of what is linked into them ask for.
documents=${man%/man}/doc/mender-app
# State scripts of Mender, for whoever wants them.
scripts=${modules%/mender/modules/v3}/mender-app/state-scripts

# Mender Orchestrator looks for its interfaces here.
interfaces=${modules%/mender/modules/v3}/mender-orchestrator/interfaces/v1

# Sub-modules that are scripts: NAME/NAME here.
extras=$here/../examples

# name:directory of each program.
places="app:$modules docker-compose:$submodules k8s:$submodules mender-app:$bin app-gen:$bin app-conformance:$bin"

if [ "$from" = --remove ]; then
	# Another module of this name stays.
	[ "$(readlink "$modules/docker-compose")" != app ] || rm -f "$modules/docker-compose"
	rm -f "$interfaces/app"
	for place in $places; do
		rm -f "${place#*:}/${place%%:*}"
	done
	for script in deb systemd python executable; do # one of somebody else's stays
		! cmp -s "$extras/$script/$script" "$submodules/$script" || rm -f "$submodules/$script"
	done
	for page in "$here"/man/*.[1-8]; do
		[ -e "$page" ] || continue
		rm -f "$man/man${page##*.}/$(basename "$page")"
	done
	rm -f "$inventory/mender-inventory-app" "$scripts"/*_Enter_50_mender-app-windows
	rmdir "$scripts" "${scripts%/*}" 2>/dev/null || true
	rm -f "$completions/mender-app" "$completions/app-gen" "$completions/app-conformance" "$completions/k8s"
	rm -f "$zsh/_mender-app" "$zsh/_app-gen" "$zsh/_app-conformance"
	rm -f "$fish/mender-app.fish" "$fish/app-gen.fish" "$fish/app-conformance.fish"
	for unit in "$here"/systemd/*.service "$here"/systemd/*.socket "$here"/systemd/*.path "$here"/systemd/*.timer; do
		unit=$(basename "$unit")
		rm -f "$units/$unit" "$units/multi-user.target.wants/$unit"
	done
	rm -f "$sysusers/mender-app.conf" "$catalog/mender-app.catalog"
	rm -f "$documents/LICENSE" "$documents/THIRD-PARTY-NOTICES"
	rmdir "$documents" "$units/multi-user.target.wants" "$submodules" "$sysusers" "$catalog" 2>/dev/null || true
	exit 0
fi

# chosen reports whether one of the programs is to be installed.
chosen() {
	for wanted; do
		case " $programs " in *" $wanted "*) return 0 ;; esac
	done
	return 1
}

# Install nothing if something is missing.
programs=${programs-app docker-compose mender-app app-gen app-conformance}
for program in $programs; do
	case " $places" in
	*" $program:"*) ;;
	*)
		echo "install: there is no program $program: PROGRAMS names some of app, docker-compose, k8s, mender-app, app-gen, app-conformance" >&2
		exit 1
		;;
	esac
	if [ ! -d "$from" ]; then
		echo "install: there is no directory $from: FROM is a directory that make build or make cross has written" >&2
		exit 1
	fi
	if [ ! -f "$from/$program" ]; then
		echo "install: $from has no $program: build it with make build or make cross, or leave it out with PROGRAMS=" >&2
		exit 1
	fi
done
for name in ${more:-}; do
	case $name in
	deb | systemd | python | executable) ;;
	*)
		echo "install: there is no sub-module $name: SUBMODULES names some of deb, systemd, python, executable" >&2
		exit 1
		;;
	esac
done
if [ "${compose_module:-}" = yes ] || [ "${orchestrator:-}" = yes ]; then
	if ! chosen app && [ ! -e "$modules/app" ]; then
		echo "install: COMPOSE_MODULE and ORCHESTRATOR need the program app: name it in PROGRAMS" >&2
		exit 1
	fi
fi

for place in $places; do
	program=${place%%:*} dir=${place#*:}
	chosen "$program" || continue
	install -d "$dir"
	# install(1) overwrites files: remove the old file first, so that a running
	# program keeps the file it was started from.
	rm -f "$dir/$program"
	install -m 755 "$from/$program" "$dir/$program"
done

for name in ${more:-}; do
	install -d "$submodules"
	rm -f "$submodules/$name"
	install -m 755 "$extras/$name/$name" "$submodules/$name"
done

install -d "$documents"
install -m 644 "$here/../LICENSE" "$here/THIRD-PARTY-NOTICES" "$documents/"

# Under this second name app installs the artifacts of mender-container-modules, in the
# place of their own module.
if [ "${compose_module:-}" = yes ]; then
	ln -sfn app "$modules/docker-compose"
fi
# app is an interface of Mender Orchestrator, too.
if [ "${orchestrator:-}" = yes ]; then
	install -d "$interfaces"
	ln -sfn ../../../mender/modules/v3/app "$interfaces/app"
fi

# belongs reports whether a configuration file or page belongs to a chosen program.
belongs() {
	case $1 in
	*docker-compose*) chosen docker-compose ;;
	*k8s*) chosen k8s ;;
	app-gen*) chosen app-gen ;;
	app-conformance*) chosen app-conformance ;;
	*) chosen app mender-app ;;
	esac
}

for sample in "$here"/etc/*.conf; do
	[ -e "$sample" ] || continue
	name=$(basename "$sample")
	belongs "$name" || continue
	install -d -m 755 "$conf"
	# A configuration file may contain a password.
	[ -e "$conf/$name" ] || install -m 600 "$sample" "$conf/$name"
done

for page in "$here"/man/*.[1-8]; do
	[ -e "$page" ] || continue
	belongs "$(basename "$page")" || continue
	install -d "$man/man${page##*.}"
	install -m 644 "$page" "$man/man${page##*.}/"
done

# The link enables the units that run at boot, as distributions do for their own units;
# to disable one, mask it. The others are for whoever wants them. Without systemd the
# files have no effect.
if chosen mender-app; then
	install -d "$inventory"
	install -m 755 "$here/inventory/mender-inventory-app" "$inventory/"
	install -d "$units/multi-user.target.wants"
	for unit in "$here"/systemd/*.service "$here"/systemd/*.socket "$here"/systemd/*.path "$here"/systemd/*.timer; do
		name=$(basename "$unit")
		sed "s|@bindir@|${bindir:-$bin}|" "$unit" >"$units/$name"
		chmod 644 "$units/$name"
		if grep -q '^WantedBy=multi-user.target$' "$unit"; then
			ln -sf "../$name" "$units/multi-user.target.wants/$name"
		fi
	done
	install -d "$scripts"
	install -m 755 "$here"/state-scripts/*_mender-app-windows "$scripts/"
	install -d "$sysusers" "$catalog"
	install -m 644 "$here/systemd/mender-app.catalog" "$catalog/mender-app.catalog"
	install -m 644 "$here/systemd/mender-app.sysusers" "$sysusers/mender-app.conf"
fi

# A program for another processor cannot print its completions here: the same program in
# the directory that the variable completions_from names prints them, or they are left out. On
# many machines docker-compose is Docker's own program: do not replace its
# completions.
install_completions() { # PROGRAM SHELL FILE
	chosen "$1" || return 0
	if text=$("${completions_from:-$from}/$1" completion "$2" 2>/dev/null) && [ -n "$text" ]; then
		install -d "$(dirname "$3")"
		printf '%s\n' "$text" >"$3"
	fi
}
for program in mender-app app-gen app-conformance; do
	install_completions "$program" bash "$completions/$program"
	install_completions "$program" zsh "$zsh/_$program"
	install_completions "$program" fish "$fish/$program.fish"
done
install_completions k8s bash "$completions/k8s"
