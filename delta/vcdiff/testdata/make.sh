#!/bin/sh
# Make the test vectors anew, with the real xdelta3 (Debian 3.0.11-dfsg), in
# the directory given (default: beside this script). What it makes is the same
# byte for byte on every run; TestVectorsAreReproducible checks that.
set -eu
cd "${1:-$(dirname "$0")}"

# Text with matches near and far; new has parts changed, moved and repeated.
text() {
	awk -v seed="$1" -v lines="$2" 'BEGIN {
		s = seed
		for (i = 0; i < lines; i++) {
			for (w = 0; w < 6; w++) {
				s = (s * 16807) % 2147483647
				printf "%s%x", (w ? " " : ""), s % 4093
			}
			print ""
		}
	}'
}
text 11 1200 > old
{
	sed -n '401,1000p' old | sed '17~40s/[0-4]/Q/g'
	text 12 100
	head -c 3000 /dev/zero
	sed -n '1,420p' old
	text 12 20
	text 12 20
} > new
: > empty

x() { XDELTA='' xdelta3 "$@"; }
rm -f ./*.vcdiff
x -e -s old new default.vcdiff              # what the reference runs
x -e -S none -s old new none.vcdiff
x -e -S djw -s old new djw.vcdiff
x -e -S fgk -s old new fgk.vcdiff
x -e -9 -S lzma -s old new lzma9.vcdiff
x -e -n -s old new nosum.vcdiff
x -e -W 16384 -s old new windows.vcdiff
x -e -S none -W 16384 -s old new windows-none.vcdiff
x -e -A -s old new noapp.vcdiff
x -e -A=note -s old new app.vcdiff
x -e new nosource.vcdiff
x -e -s old empty empty-new.vcdiff
x -e -s empty new empty-old.vcdiff
x -e -s empty empty empty-both.vcdiff
x -e -s old old same.vcdiff
x -e -N -S none -s old new nosmall.vcdiff
