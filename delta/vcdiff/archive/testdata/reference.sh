#!/bin/sh
# What the shell module's generator (app-gen --deep-delta) does with two images
# that `docker save` wrote and tar unpacked: make of NEW a deep delta against
# OLD, in OUT. Layers are given in their order, as the generator finds them
# (docker-archive: by the "parent" in ID/json; OCI: by manifest.json).
#
#	reference.sh docker OLD NEW OUT "OLDID OLDID…" "NEWID NEWID…"
#	reference.sh oci OLD NEW OUT "OLDBLOB OLDBLOB…" "NEWBLOB NEWBLOB…"
#
# NEW is changed.
set -eu
form=$1 old=$2 new=$3 out=$4
set -f
old_layers=$5
# shellcheck disable=SC2086
set -- $6

sum() { sha256sum "$1" | cut -f1 -d' '; }

for o in $old_layers; do
	[ $# -gt 0 ] || break
	n=$1
	shift
	case $form in
	docker)
		from=$old/$o/layer.tar to=$new/$n/layer.tar
		from_sum=$(sum "$from") to_sum=$(sum "$to")
		if [ "$from_sum" = "$to_sum" ]; then
			echo "$to_sum" > "$to.sha256sum"
		else
			XDELTA='' xdelta3 -e -s "$from" "$to" "$to.vcdiff"
			echo "$from_sum" > "$to.current.sha256sum"
			echo "$to_sum" > "$to.new.sha256sum"
		fi
		rm -f "$to"
		;;
	oci)
		# It does not stop when xdelta3 fails, as it does where a blob occurs
		# twice and is gone the second time.
		if XDELTA='' xdelta3 -e -s "$old/blobs/sha256/$o" "$new/blobs/sha256/$n" \
			"$new/blobs/sha256/$n.vcdiff" 2> /dev/null; then
			rm -f "$new/blobs/sha256/$n"
		fi
		echo "blobs/sha256/$o" > "$new/blobs/sha256/$n.source"
		;;
	esac
done
tar -cf "$out" -C "$new" .
