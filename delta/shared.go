package delta

// Names in the headers of the two deltas that follow one another where an image
// comes for one of several bases: the first makes files that the deltas for all
// bases need, the second makes the image. See FORMAT.md, "Shared content".
const (
	// SharedContent is the image that the first delta makes, of one tar object.
	// Its files are old content to the second.
	SharedContent = "shared:content"
	// SharedBase is the old image whose one tar object stands for all layers of
	// the base: a file in it is that of the topmost layer that has one at the
	// path. Its headers are never read.
	SharedBase = "shared:base"
)
