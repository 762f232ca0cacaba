// Package mender writes, reads, signs and verifies Mender Artifacts, version 3: the
// container an App Artifact travels in. It streams in both directions, and its output
// is deterministic. It is tested against the real mender-artifact tool, as reader and
// as writer.
//
// The package does not know what the payload's files are. Beyond the standard
// library it uses klauspost/compress/zstd, because zstd is one of the format's
// compressions and the standard library has none; internal/xz is another.
package mender
