package delta

// Names in the headers of the two consecutive deltas of an image that comes for
// several bases. The first makes files that the deltas for all bases need, the
// second makes the image. See FORMAT.md, "Shared content".
const (
	// SharedContent is the image that the first delta makes. It has one tar
	// object, whose files are old content for the second delta.
	SharedContent = "shared:content"
	// SharedBase is an old image with one tar object, which stands for all
	// layers of the base: a path in it means the file of the topmost layer that
	// has one at that path. Its headers are never read.
	SharedBase = "shared:base"
)
