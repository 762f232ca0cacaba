// Package artifact reads and writes App Artifacts: the metadata, the images
// payload and the manifests payload. It reads them as a stream, within bounds, and
// treats them as hostile. What it writes is deterministic. FORMAT.md in this
// directory describes the format, which extends that of the shell
// app-update-module. That module installs our full artifacts, and we install its.
//
// The package does not know what is inside an image.img or image.delta, which
// container the files travel in (artifact/mender), or what a device does with
// them. It uses klauspost/compress/gzip because that packs a full image two to
// three times as fast as the standard library.
package artifact
