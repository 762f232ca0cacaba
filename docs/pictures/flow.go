package main

// flow draws how a release travels from the build host to the device, and back to the
// previous release where it does not become healthy.
func flow() []byte {
	s := &svg{width: 864, height: 404}
	s.add(`<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path class="tip" d="M0 0L8 4L0 8z"/></marker>` +
		`<marker id="back" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path class="backtip" d="M0 0L8 4L0 8z"/></marker></defs>`)

	s.place(24, 250, "Build host or CI")
	s.box("box", 44, 68, 210, 58, "compose.yaml", "or Kubernetes objects", true)
	s.box("box", 44, 142, 210, 58, "Images", "registry, engine, archive", false)
	s.box("box", 44, 216, 210, 58, "releases/shop-1.mender", "what devices have", true)
	s.box("main", 44, 306, 210, 58, "app-gen -n shop-2", "finds what changed", true)
	s.arrow("track", "tip", "M44 97H34V335H40")
	s.add(`<path class="track" d="M44 171H34M44 245H34"/>`)

	s.place(298, 240, "On its way")
	s.box("main", 318, 306, 200, 58, "shop-2.mender", "signed: deltas and manifests", true)
	s.box("box", 318, 216, 200, 58, "Mender server", "or https, a file, USB", false)
	s.text("dim", "middle", 418, 96, "Unchanged layers are left out.")
	s.text("dim", "middle", 418, 116, "Changed ones are deltas that")
	s.text("dim", "middle", 418, 136, "see into files and programs.")
	s.text("dim", "middle", 418, 156, "New ones are compressed.")
	s.arrow("track", "tip", "M254 335H314")
	s.arrow("track", "tip", "M418 306V278")

	s.place(562, 278, "Device")
	s.box("box", 586, 216, 230, 58, "Mender client", "or mender-app install", false)
	s.box("main", 586, 142, 230, 58, "app", "journal, preflight, rollback", true)
	s.box("main", 586, 68, 230, 58, "docker-compose, k8s", "rebuild layers, verify, start", true)
	s.box("box", 586, 306, 108, 58, "shop-2", "healthy: stays", true)
	s.box("box", 708, 306, 108, 58, "shop-1", "kept", true)
	s.arrow("track", "tip", "M518 245H582")
	s.arrow("track", "tip", "M701 216V204")
	s.arrow("track", "tip", "M701 142V130")
	s.arrow("track", "tip", "M586 97H574V335H582")
	s.arrow("return", "back", "M816 97H828V335H820")
	s.text("small warn", "end", 818, 293, "not healthy, or on request")
	return s.done("How a release travels",
		"On the build host, app-gen makes an artifact from a Compose file, images and the releases that devices have. "+
			"It travels through a Mender server, over https or as a file. On the device, the Mender client or mender-app "+
			"gives it to the update module app, and that to the sub-module docker-compose or k8s, which rebuilds layers, "+
			"verifies and starts them. If the release does not become healthy, the one before runs again.")
}

// place is where a part of the journey happens.
func (s *svg) place(x, width float64, name string) {
	s.rect("panel", x, 20, width, 364, 10)
	s.text("title", "start", x+20, 50, name)
}

// box is something with a name, in letters of a program if it is one, and a few words.
func (s *svg) box(class string, x, y, width, height float64, name, words string, code bool) {
	s.rect(class, x, y, width, height, 6)
	style := "name"
	if code {
		style = "name code"
	}
	s.text(style, "middle", x+width/2, y+25, name)
	s.text("small dim", "middle", x+width/2, y+44, words)
}

func (s *svg) arrow(class, tip, path string) {
	s.add(`<path class="%s" marker-end="url(#%s)" d="%s"/>`, class, tip, path)
}
