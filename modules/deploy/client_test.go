package deploy

import (
	"errors"

	"github.com/mender-app/mender-app/modules"
)

// client is what a Mender client does, standalone, and with daemon set what the
// daemon does, which restarts the machine where an application asks for it: the order of its calls and
// what it takes for installed. Orders as traced on 3.4.0 (Go) and on the C++
// client.
type client struct {
	g   *rig
	cpp bool
	// open is the installation that waits for a commit, or that the C++ client
	// knows to be interrupted: the state in which it was.
	open  *tree
	state modules.State
	// provides: what is installed, by application; "" and _INCONSISTENT ones
	// included.
	provides map[string]*release
	broken   bool // _INCONSISTENT
	settled  bool // mender-app resume had settled the deployment that left broken
	// unsure are applications of which 3.4.0 was killed in the last call of an
	// update that failed: it stores nothing before the end.
	unsure map[string]bool
	// resumed: mender-app resume ran between a kill and what the client does then. It may
	// have brought back the old release where the client calls the new one inconsistent.
	resumed  bool
	undoing  bool // a rollback has been begun
	daemon   bool // it restarts the machine
	rebooted bool // it has, in the new release
	// kill, if set, says at which point of a call to kill it; 0 is never.
	kill  func(modules.State) int
	cut   func() bool // after a kill: was it a power cut?
	loses bool        // and did the engine lose what the containers need?
}

func newClient(g *rig, cpp bool) *client {
	return &client{g: g, cpp: cpp, provides: map[string]*release{}, unsure: map[string]bool{}}
}

// operatorResumed notes that an operator ran mender-app resume.
func (c *client) operatorResumed() {
	c.resumed = true
	c.settled = c.settled || c.broken && c.open != nil
}

func (c *client) call(s modules.State, tr *tree) error {
	if c.kill == nil {
		return c.g.call(s, tr)
	}
	n := c.kill(s)
	if n == 0 {
		return c.g.call(s, tr)
	}
	_, err := c.g.killedCall(s, tr, n)
	if errors.Is(err, errKilled) && c.cut != nil && c.cut() {
		c.g.w.powerCut()
		c.g.boot++
		if c.loses {
			c.g.w.lose()
		}
	}
	return err
}

// install is `mender install`. errKilled means that the client died, too.
func (c *client) install(tr *tree) error {
	if c.cpp && c.open != nil {
		return errors.New("an update is in progress")
	}
	c.open, c.state, c.undoing, c.rebooted, c.resumed = nil, "", false, false, false // 3.4.0 overwrites what it knew
	if err := c.call(modules.Download, tr); err != nil {
		if errors.Is(err, errKilled) {
			return err
		}
		return errors.Join(err, c.end(c.call(modules.Cleanup, tr)))
	}
	if c.cpp {
		c.open, c.state = tr, modules.ArtifactInstall
	}
	if err := c.call(modules.ArtifactInstall, tr); err != nil {
		if errors.Is(err, errKilled) {
			return err
		}
		c.open = tr
		broken, settled := c.broken, c.settled
		err = errors.Join(err, c.undo(true))
		if errors.Is(err, errKilled) && !c.cpp {
			c.open, c.undoing, c.broken, c.settled = nil, false, broken, settled // it stores nothing before the end
			c.unsure[tr.release.app] = c.g.failed(tr.release.app)
		}
		return err
	}
	if answer, _ := Reply(modules.NeedsArtifactReboot, tr.Tree); c.daemon && answer == modules.Automatic {
		c.open, c.state, c.rebooted = tr, modules.ArtifactVerifyReboot, true
		if err := c.call(modules.ArtifactReboot, tr); err != nil {
			return c.failed(err)
		}
		c.restart(tr)
		if err := c.call(modules.ArtifactVerifyReboot, tr); err != nil {
			return c.failed(err)
		}
	}
	c.open, c.state = tr, modules.ArtifactCommit
	return nil
}

func (c *client) failed(err error) error {
	if errors.Is(err, errKilled) {
		return err
	}
	return errors.Join(err, c.undo(true))
}

// restart is a reboot; what was not made durable is lost.
func (c *client) restart(tr *tree) {
	c.g.w.powerCut()
	c.g.boot++
	if tr.release.worn {
		c.g.w.sick[tr.release.compose()] = true
	}
}

// undo is RB, F, Cl.
func (c *client) undo(failure bool) error {
	tr := c.open
	c.undoing = true
	c.state = modules.ArtifactRollback
	rberr := errors.New("the module does not support rollback")
	if c.daemon || !StaysFailed(c.g.engine().Store, tr.Tree) { // the daemon keeps the first answer
		rberr = c.call(modules.ArtifactRollback, tr)
	}
	if errors.Is(rberr, errKilled) {
		return rberr
	}
	if c.rebooted {
		c.state = modules.ArtifactRollbackReboot
		err := c.call(modules.ArtifactRollbackReboot, tr)
		if err == nil {
			c.restart(tr)
			err = c.call(modules.ArtifactVerifyRollbackReboot, tr)
		}
		if errors.Is(err, errKilled) {
			return err
		}
		rberr = errors.Join(rberr, err)
	}
	var ferr error
	if failure {
		c.state = modules.ArtifactFailure
		if ferr = c.call(modules.ArtifactFailure, tr); errors.Is(ferr, errKilled) {
			return ferr
		}
	}
	c.broken, c.settled = rberr != nil, rberr != nil && c.resumed
	c.state = modules.Cleanup
	err := c.call(modules.Cleanup, tr)
	if errors.Is(err, errKilled) {
		return err
	}
	return errors.Join(rberr, c.end(err))
}

func (c *client) end(err error) error {
	if errors.Is(err, errKilled) {
		return err
	}
	if c.broken && c.open != nil && c.open.release.stays() && c.g.failed(c.open.release.app) {
		r := c.open.release
		c.provides[r.app], c.g.installed = &r, r.name+"_INCONSISTENT"
		delete(c.unsure, r.app)
	}
	c.open, c.state, c.undoing = nil, "", false
	return err
}

// commit is `mender commit`.
func (c *client) commit() error {
	if c.open == nil {
		return errors.New("nothing to commit")
	}
	tr := c.open
	if err := c.call(modules.ArtifactCommit, tr); err != nil {
		if errors.Is(err, errKilled) {
			return err
		}
		return errors.Join(err, c.undo(true))
	}
	r := tr.release
	c.provides[r.app] = &r
	delete(c.unsure, r.app)
	c.g.installed = r.name
	c.broken = false
	c.state = modules.Cleanup
	return c.end(c.call(modules.Cleanup, tr))
}

// rollback is `mender rollback`.
func (c *client) rollback() error {
	if c.open == nil {
		return errors.New("nothing to roll back")
	}
	return c.undo(c.cpp)
}

// resume is the C++ client's `mender-update resume`.
func (c *client) resume() error {
	if c.open == nil {
		return errors.New("nothing to resume")
	}
	switch c.state {
	case modules.Cleanup:
		return c.end(c.call(modules.Cleanup, c.open))
	case modules.ArtifactCommit, modules.ArtifactInstall, modules.ArtifactRollback, modules.ArtifactFailure,
		modules.ArtifactVerifyReboot, modules.ArtifactRollbackReboot:
		return c.undo(true)
	}
	return errors.New("unknown state")
}

// goOn is what the client does next after a kill: the C++ client resumes; for
// 3.4.0 a person repeats the command. again is what was being installed.
func (c *client) goOn(again *tree) error {
	switch {
	case c.open == nil:
		return c.install(again)
	case c.cpp:
		return c.resume()
	case c.undoing:
		return c.rollback()
	}
	return c.commit()
}
