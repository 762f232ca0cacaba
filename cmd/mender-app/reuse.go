package main

import (
	"github.com/spf13/pflag"

	"github.com/mender-app/mender-app/modules"
)

// reuseFlags are the flags of an installation that say whether the new release keeps what an
// operator chose.
type reuseFlags struct {
	flags               *pflag.FlagSet
	services, overrides bool
}

const (
	flagServices  = "reuse-services"
	flagOverrides = "reuse-overrides"
)

// Flags adds the flags.
func (r *reuseFlags) Flags(f *pflag.FlagSet) {
	r.flags = f
	f.BoolVar(&r.services, flagServices, true, "keep which services are switched on and off, whatever the policy says; false: start as shipped")
	f.BoolVar(&r.overrides, flagOverrides, true, "keep the operator's override, whatever the policy says; false: start without it")
}

// Said is a person's choice; without one the policy decides.
func (r *reuseFlags) Said() (said modules.Reuse) {
	if r.flags == nil { // the device installs by itself
		return said
	}
	if r.flags.Changed(flagServices) {
		said.Services = &r.services
	}
	if r.flags.Changed(flagOverrides) {
		said.Overrides = &r.overrides
	}
	return said
}
