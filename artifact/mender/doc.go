// Package mender writes, reads, signs and verifies Mender Artifacts, version
// 3: the container an App Artifact travels in. It is streaming both ways and
// deterministic when writing; what the real mender-artifact tool accepts and
// makes is its test.
//
// The package does not know what the payload's files are. Beyond the standard
// library it uses klauspost/compress/zstd, because zstd is one of the format's
// compressions and the standard library has none; internal/xz is another.
package mender
