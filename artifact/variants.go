package artifact

import (
	"archive/tar"
	"fmt"
	"io"
	"strings"

	"github.com/mender-app/mender-app/artifact/clip"
)

// variant reads a member of an image with variants.
func (r *imagesReader) variant(d *imageDir, name string, size int64) error {
	if err := d.next(name); err != nil {
		return err
	}
	if r.o.Members == nil {
		d.size = size
		return r.hand(d, r.tr)
	}
	want := r.o.Members(d.digest)
	if len(want) == 0 || want[0] != name {
		return nil // the tar reader skips the content
	}
	d.size = size
	return r.hand(d, &joined{r: r, d: d, rest: want[1:]})
}

// next records the next member of the variants. Their order is: the shared
// content, the deltas by number, the full image.
func (d *imageDir) next(name string) error {
	rank := func(s string) int {
		switch s {
		case "":
			return 0
		case memberShared:
			return 1
		case memberImage:
			return maxVariants + 2
		}
		return 1 + variantOf(s)
	}
	fail := func(text string) error {
		return fmt.Errorf("images: %w: image %s: %s %s", ErrPayload, d.digest, name, text)
	}
	switch {
	case len(d.texts) < 4:
		return fail("comes before what describes it")
	case d.deep || d.texts[memberURLNew] != d.texts[memberURLCurrent]:
		return fail("beside a delta of the reference")
	case d.content != "" && !d.several || rank(name) <= rank(d.content):
		return fail("is not where it belongs")
	}
	d.content, d.several = name, true
	return nil
}

// joined reads several members of an image as one content.
type joined struct {
	r    *imagesReader
	d    *imageDir
	rest []string
}

func (j *joined) Read(p []byte) (int, error) {
	for {
		n, err := j.r.tr.Read(p)
		if n > 0 || err == nil && len(p) == 0 {
			return n, nil
		}
		if err == nil {
			continue
		}
		if err != io.EOF || len(j.rest) == 0 {
			return 0, err
		}
		if err := j.advance(); err != nil {
			return 0, err
		}
	}
}

// advance goes to the next wanted member.
func (j *joined) advance() error {
	for {
		h, err := j.r.tr.Next()
		if err != nil && err != io.EOF {
			return err
		}
		dir := imagesDir + "/" + j.d.digest.Hex() + "/"
		if err == io.EOF || h.Typeflag != tar.TypeReg || !strings.HasPrefix(h.Name, dir) {
			return fmt.Errorf("images: %w: image %s: %s is missing", ErrPayload, j.d.digest, j.rest[0])
		}
		name := strings.TrimPrefix(h.Name, dir)
		if name != memberImage && name != memberShared && variantOf(name) == 0 {
			return fmt.Errorf("images: %w: image %s: %q among its variants", ErrPayload, j.d.digest, clip.Text(name))
		}
		if err := j.d.next(name); err != nil {
			return err
		}
		if name == j.rest[0] {
			j.rest = j.rest[1:]
			j.d.size += h.Size
			return nil
		}
	}
}
