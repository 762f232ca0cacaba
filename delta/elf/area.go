package elf

// Area names what lies at an offset, for an account of what a delta is made of.
func (f *File) Area(off uint64) string {
	s, _ := f.section(off)
	if s == nil {
		return "outside of sections"
	}
	if s.class == classPcln && f.gotab != nil {
		g := f.gotab
		names := [...]string{"Go's header", "Go's names", "Go's units", "Go's files", "Go's pc tables", "Go's functions"}
		at := 0
		for i, part := range [...]uint64{g.names, g.units, g.files, g.pcs, g.funcs} {
			if off-g.off >= part {
				at = i + 1
			}
		}
		if at == 5 && g.tail != 0 && off-g.off >= g.funcs+g.tail {
			return "Go's function data"
		}
		return names[at]
	}
	if s.class == classData && f.goBases.Types != 0 {
		if a, ok := f.addr(off); ok && a >= f.goBases.Types && a < f.goBases.TypesEnd {
			return "Go's types"
		}
	}
	return classNames[s.class]
}

var classNames = [...]string{
	classNone: "other", classCode: "code", classPlt: "plt", classPcln: "pclntab", classExidx: "exidx", classEhHdr: "eh_frame_hdr",
	classRel: "relocations", classSyms: "symbols", classPointers: "pointers", classTypelink: "Go's typelinks",
	classBuildID: "build ID", classDebugLink: "debug link", classData: "data",
}

// String names the kind.
func (k Kind) String() string { return kindNames[k] }

var kindNames = [NumKinds]string{
	kindArm: "A32 branches", kindThumb: "Thumb branches", kindA64: "A64 branches", kindPage: "A64 page pairs", kindPageAlone: "A64 pages",
	kindX86: "x86 displacements", kindAbs32: "addresses, 32 bits", kindAbs64: "addresses, 64 bits", kindPrel31: "exidx", kindRel32: "eh_frame_hdr",
	kindPool: "literal pools", kindPlt: "plt", kindSym: "relocations' symbols", kindRelOff: "relocations' places", kindName: "symbols' names",
	kindID: "build ID", kindIDText: "build ID as text", kindSum: "debug link's checksum", kindShort16: "short references, 16 bits",
	kindShort: "short references", kindGo + goEntry: "Go's entries", kindGo + goRecord: "Go's records", kindGo + goFirst: "Go's records: entry",
	kindGo + goName: "Go's records: name", kindGo + goTable1: "Go's records: pc tables", kindGo + goUnit: "Go's records: unit",
	kindGo + goFunc: "Go's records: function data", kindGo + goWord: "Go's records: other", kindGo + goType: "Go's type words",
	kindGo + goLink: "Go's typelinks", kindGo + goTreeName: "Go's inline trees: name", kindGo + goFind: "Go's findfunctab",
	kindGo + goLine: "Go's lines", kindGo + goStart: "Go's records: line", kindGo + goTreeLine: "Go's inline trees: line",
	kindPageLow: "A64 pages, low bits apart", kindLow: "A64 low bits", kindLiteral: "literals, PC apart",
}
