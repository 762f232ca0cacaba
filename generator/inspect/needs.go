package inspect

import (
	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/delta/budget"
)

// SetLink sets Times for a rate at which the artifact arrives.
func (d *Description) SetLink(l budget.Link) {
	var decode int64
	if s, _ := d.Needs(); s != nil {
		decode = s.Decode
	}
	t := l.TimesOn(d.meta.Platform, d.Bytes, decode)
	d.Times = &t
}

// Needs is what the artifact takes on a device, nil if it does not say. An image that
// travels in several ways counts with the largest figures of these, because which way a
// device takes is known only there: atMost says that there is such an image.
func (d Description) Needs() (sizes *artifact.Sizes, atMost bool) {
	announced := d.Parsed().Sizes
	if announced == nil {
		return nil, false
	}
	s := *announced
	for _, img := range d.Images {
		var engine, decode int64
		for _, v := range img.Variants {
			atMost = true
			engine, decode = max(engine, v.Engine), max(decode, v.Decode)
			s.Temp = max(s.Temp, v.Temp)
			s.Memory = max(s.Memory, v.Memory)
		}
		s.Engine += engine
		s.Decode += decode
	}
	return &s, atMost
}
