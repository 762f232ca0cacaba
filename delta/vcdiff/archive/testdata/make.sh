#!/bin/sh
# Make the vectors anew with the real xdelta3 (Debian 3.0.11-dfsg) and GNU
# tar: for both layouts of docker save an old image (NAME-old.tar), the deep
# delta of a new one (NAME-delta.tar) and the sums of the new image's files
# (NAME-new.sums). By hand, as docker would lay them out:
# base is unchanged, app changes, conf changes and in OCI occurs twice (as an
# empty layer does), data is new; in the docker-archive a layer that occurs
# again is a link, as docker save makes it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dest=${1:-$here}
dest=$(cd "$dest" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"

text() {
	awk -v seed="$1" -v lines="$2" 'BEGIN {
		s = seed
		for (i = 0; i < lines; i++) {
			s = (s * 16807) % 2147483647
			printf "%x %x\n", s % 4093, s % 97
		}
	}'
}
pack() { tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=gnu -cf "$@"; }
sum() { sha256sum "$1" | cut -f1 -d' '; }
# An ID made of a word, as long as docker's.
id() { printf %s "$1" | sha256sum | cut -f1 -d' '; }

layer() { # NAME FILE-COMMAND
	mkdir -p "l/$1/etc"
	sh -c "$2" > "l/$1/etc/$1"
	pack "$1.tar" -C "l/$1" .
}
text 1 900 > t1
text 2 300 > t2
layer base 'cat t1'
layer app1 'cat t1 t2'
layer app2 'sed -n 100,800p t1; cat t2; sed "20~9s/1/Z/" t1'
layer conf1 'echo conf one'
layer conf2 'echo conf two; cat t2'
layer data 'cat t2 t2'

config() { # FILE LAYER…
	f=$1
	shift
	{
		printf '{"architecture":"arm","os":"linux","config":{},"rootfs":{"type":"layers","diff_ids":['
		sep=
		for l; do
			printf '%s"sha256:%s"' "$sep" "$(sum "$l.tar")"
			sep=,
		done
		printf ']}}'
	} > "$f"
}

docker() { # DIR CONFIG LAYER…
	d=$1 c=$2
	shift 2
	mkdir -p "$d"
	config config "$@"
	cp config "$d/$(sum config).json"
	parent= layers= sep= seen=
	for l; do
		i=$(id "$c$l$parent")
		mkdir "$d/$i"
		echo -n 1.0 > "$d/$i/VERSION"
		printf '{"id":"%s"%s}' "$i" "${parent:+,\"parent\":\"$parent\"}" > "$d/$i/json"
		case " $seen " in
		*" $l="*) ln -s "../$(echo "$seen" | tr ' ' '\n' | sed -n "s/^$l=//p")/layer.tar" "$d/$i/layer.tar" ;;
		*) cp "$l.tar" "$d/$i/layer.tar" ;;
		esac
		seen="$seen $l=$i"
		layers="$layers$sep\"$i/layer.tar\"" sep=,
		parent=$i
		echo "$i" >> "$d.ids"
	done
	printf '[{"Config":"%s.json","RepoTags":["web:%s"],"Layers":[%s]}]' "$(sum config)" "$c" "$layers" > "$d/manifest.json"
}

oci() { # DIR TAG LAYER…
	d=$1 c=$2
	shift 2
	mkdir -p "$d/blobs/sha256"
	config config "$@"
	blob() { cp "$1" "$d/blobs/sha256/$(sum "$1")"; }
	blob config
	{
		printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:%s","size":%d},"layers":[' "$(sum config)" "$(wc -c < config)"
		sep=
		for l; do
			printf '%s{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"sha256:%s","size":%d}' "$sep" "$(sum "$l.tar")" "$(wc -c < "$l.tar")"
			sep=,
		done
		printf ']}'
	} > manifest
	blob manifest
	layers= sep=
	for l; do
		blob "$l.tar"
		layers="$layers$sep\"blobs/sha256/$(sum "$l.tar")\"" sep=,
		sum "$l.tar" >> "$d.ids"
	done
	printf '{"imageLayoutVersion":"1.0.0"}' > "$d/oci-layout"
	printf '{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%s","size":%d}]}' "$(sum manifest)" "$(wc -c < manifest)" > "$d/index.json"
	printf '[{"Config":"blobs/sha256/%s","RepoTags":["web:%s"],"Layers":[%s]}]' "$(sum config)" "$c" "$layers" > "$d/manifest.json"
}

finish() { # NAME FORM
	(cd "$1-new" && find . -type f -exec sha256sum {} + | sed 's,\./,,' | LC_ALL=C sort -k2) > "$dest/$1-new.sums"
	pack "$dest/$1-old.tar" -C "$1-old" .
	# shellcheck disable=SC2046
	"$here/reference.sh" "$2" "$1-old" "$1-new" "$dest/$1-delta.tar" \
		"$(tr '\n' ' ' < "$1-old.ids")" "$(tr '\n' ' ' < "$1-new.ids")" > /dev/null
	pack "$dest/$1-delta.tar" -C "$1-new" .
}

docker docker-old 1 base app1 conf1 conf1
docker docker-new 2 base app2 conf2 data base
finish docker docker
oci oci-old 1 base app1 conf1 app1
oci oci-new 2 base app2 conf2 conf2 data
finish oci oci
