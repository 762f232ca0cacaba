// Package image reads and writes container image archives: docker-archive
// (classic, and with blobs/), OCI layouts (as a tar or a directory), and the
// hybrid of both that every Docker engine and containerd store can load.
//
// An image here is what its content says it is: the digest of its config and
// the diffIDs of its layers, never a tag or an engine's image ID. The package
// knows nothing of engines, registries, Mender or deltas. It imports the
// standard library and klauspost/compress/zstd only; the latter because layers
// and whole archives compressed with zstd have to be read.
//
// Everything read is taken as hostile: sizes are checked before memory is
// given to them, names are never used as paths on a file system, and what a
// layer or config claims is compared with its digest before it is trusted.
package image
