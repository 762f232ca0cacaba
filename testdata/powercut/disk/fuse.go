package main

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// root is the directory that holds the only file.
type root struct {
	fs.Inode
	cache *cache
}

func (r *root) OnAdd(ctx context.Context) {
	file := r.NewPersistentInode(ctx, &file{cache: r.cache}, fs.StableAttr{Mode: syscall.S_IFREG})
	r.AddChild("disk", file, true)
}

// file is the disk as a file. It bypasses the kernel's page cache: each write and
// fsync of the loop device arrives here unchanged.
type file struct {
	fs.Inode
	cache *cache
}

var _ interface {
	fs.NodeGetattrer
	fs.NodeSetattrer
	fs.NodeOpener
	fs.NodeReader
	fs.NodeWriter
	fs.NodeFsyncer
} = (*file)(nil)

func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size, out.Blksize = 0o600, uint64(f.cache.size), 4096
	return 0
}

func (f *file) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, ok := in.GetSize(); ok && size != uint64(f.cache.size) {
		return syscall.EPERM
	}
	return f.Getattr(nil, nil, out)
}

func (f *file) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (f *file) Read(_ context.Context, _ fs.FileHandle, b []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n, err := f.cache.read(b, off)
	return fuse.ReadResultData(b[:n]), fs.ToErrno(err)
}

func (f *file) Write(_ context.Context, _ fs.FileHandle, b []byte, off int64) (uint32, syscall.Errno) {
	if err := f.cache.write(b, off); err != nil {
		return 0, fs.ToErrno(err)
	}
	return uint32(len(b)), 0
}

func (f *file) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return fs.ToErrno(f.cache.flush())
}
