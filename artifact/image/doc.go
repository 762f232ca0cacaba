// Package image reads and writes container image archives: docker-archive
// (classic, and with blobs/), OCI layouts (as a tar or a directory), and the
// hybrid of both that every Docker engine and containerd store can load.
//
// The digest of its config and the diffIDs of its layers identify an image. A tag
// or the image ID of an engine does not. The package knows nothing of engines,
// registries, Mender or deltas. It uses klauspost/compress/zstd because layers and
// whole archives may be compressed with zstd.
//
// All input may be hostile. The package checks sizes before it allocates memory,
// never uses a name as a path on a file system, and compares layers and configs
// with their digests before it trusts them.
package image
