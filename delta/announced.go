package delta

import "fmt"

// AnnouncedError reports that a delta does not make what was announced.
type AnnouncedError struct {
	Index int         // of the first object that differs
	Want  *ObjectInfo // nil: no such object was announced
	Got   *ObjectInfo // nil: the delta does not have it
	Field string      // what differs: "digest", "size", "kind" or "encoding"; "" if one of the objects is missing
}

func (e *AnnouncedError) Error() string {
	switch {
	case e.Got == nil:
		return fmt.Sprintf("the delta has no object %d (%s), which is announced", e.Index, e.Want.Digest)
	case e.Want == nil:
		return fmt.Sprintf("the delta has an object %d (%s), which is not announced", e.Index, e.Got.Digest)
	}
	got, want := any(e.Got.Digest), any(e.Want.Digest)
	switch e.Field {
	case "size":
		return fmt.Sprintf("object %d (%s) of the delta has %d bytes, and %d are announced", e.Index, e.Got.Digest, e.Got.Size, e.Want.Size)
	case "kind":
		got, want = e.Got.Kind, e.Want.Kind
	case "encoding":
		got, want = e.Got.Encoding, e.Want.Encoding
	}
	return fmt.Sprintf("object %d (%s) of the delta has the %s %v, and %v is announced", e.Index, e.Got.Digest, e.Field, got, want)
}

// CheckAnnounced compares the objects of the new image, in order, with what signed
// metadata says about them. The error is an *AnnouncedError. A call before Apply
// keeps the delta's work and output within what is announced, because the head
// bounds both.
//
// Digest and Kind must be equal. So must Size and Encoding, except that a negative
// announced Size matches any size, and an empty Encoding any but Omitted. Index is
// ignored.
func (h Header) CheckAnnounced(announced []ObjectInfo) error {
	for i := range max(len(h.Objects), len(announced)) {
		e := &AnnouncedError{Index: i}
		if i < len(announced) {
			e.Want = &announced[i]
		}
		if i < len(h.Objects) {
			e.Got = &h.Objects[i]
		}
		if e.Want == nil || e.Got == nil {
			return e
		}
		if e.Field = difference(e.Want, e.Got); e.Field != "" {
			return e
		}
	}
	return nil
}

// difference returns the first field that differs, or "".
func difference(want, got *ObjectInfo) string {
	switch {
	case got.Digest != want.Digest:
		return "digest"
	case got.Kind != want.Kind:
		return "kind"
	case want.Size >= 0 && got.Size != want.Size:
		return "size"
	case want.Encoding == "" && got.Encoding == Omitted, want.Encoding != "" && got.Encoding != want.Encoding:
		return "encoding"
	}
	return ""
}
