// Package artifact is the App Artifact: its metadata, its images payload and
// its manifests payload, read (streaming, bounded, as hostile input) and
// written (deterministically). FORMAT.md in this directory is the one
// description of the format; it is a superset of that of the shell
// app-update-module, in both directions as far as that one can go.
//
// The package does not know what is inside an image.img or image.delta, nor
// the container it all travels in (artifact/mender), nor what a device does
// with it. Beyond the standard library it uses artifact/image, for digests and
// platforms, and klauspost/compress/gzip, which packs a full image two to
// three times as fast as the standard library's.
package artifact
