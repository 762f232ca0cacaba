package modules

import "time"

// Leave must be called before the process of a failed Download ends. It waits
// until the client offers the next file of the payload, or says that there is
// none. It does not read that file. limit bounds the wait.
// Streams must not be used afterwards.
//
// It works around a deadlock in client 3.4.0 (moduleDownload in its
// installer/modules.go): if the module ends while the client offers no file
// (before the first, between two, or right after one that was not read to its
// end), the client may wait forever. This was seen in one of about 17 calls that
// failed at once. The C++ client, which calls DownloadWithFileSizes, does not have
// the fault.
func (t *Tree) Leave(limit time.Duration) {
	if s := t.streams; s != nil && (s.asked || s.offer != nil) {
		if !s.asked { // else the client has already offered a file, or has no more
			_ = s.offer.wait(limit)
		}
		s.close()
		return
	}
	o, err := awaitOffer(t.dir)
	if err != nil {
		return
	}
	defer o.close()
	_ = o.wait(limit)
}
