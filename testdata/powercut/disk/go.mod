module github.com/mender-app/mender-app/testdata/powercut/disk

go 1.24.0

require github.com/hanwen/go-fuse/v2 v2.12.1

require golang.org/x/sys v0.28.0 // indirect
