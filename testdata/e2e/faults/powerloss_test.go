package faults

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// restartWhenAsked restarts the engine when bed.RestartCommand asks for it. The result
// is what went wrong.
func restartWhenAsked(ctx context.Context, d *bed.Device) <-chan error {
	done := make(chan error, 1)
	go func() {
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			if wanted, err := d.RestartIfWanted(); wanted {
				done <- err
				return
			}
		}
		done <- errors.New("nobody asked for a restart of the engine")
	}()
	return done
}

// powerLoss kills every process at once when the engine has just published the port of
// the new web service. Docker 20.10 and 26.1 have then written down only half of it.
const powerLoss = `
proxies() { pgrep -f '[d]ocker-proxy .*-host-port 8080 ' | sort; }
old=$(proxies)
while [ -z "$(comm -13 <(echo "$old") <(proxies))" ]; do :; done
sleep 0.0$((RANDOM % 10))
kill -KILL -1`

// A power loss while a port is published makes the restarted engine hold the port for
// no container. The application runs again nevertheless: its engine is restarted, if
// the operator lets it be. The client believes what is true, too.
func TestPowerLossWhilePortIsPublished(t *testing.T) {
	for _, c := range e2e.Clients {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			bed.Require(t, "mender-artifact", "pgrep", "curl")
			b := &battery{dir: t.TempDir(), engine: bed.RequireEngine(t)}
			d := b.boot(t)
			c.Use(t, d)
			files := map[string]string{}
			for _, v := range []string{"1", "2"} {
				files[v] = e2e.Release(t, d, v, "")
			}
			e2e.Mender(t, d, "install", files["1"])
			e2e.Mender(t, d, "commit")

			for range 6 {
				losePower(t, d, files["2"])
				d = b.boot(t)
				c.Use(t, d)
				if afterPowerLoss(t, d) {
					return
				}
			}
			require.NotContains(t, []string{"20.10", "26.1"}, b.engine.Name, "the power never failed at the moment that matters")
		})
	}
}

// A power loss in the first installation leaves no release to go back to, and nothing runs.
// So the next installation restarts an engine that holds the port.
func TestPowerLossInFirstInstallation(t *testing.T) {
	for _, c := range e2e.Clients {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			bed.Require(t, "mender-artifact", "pgrep", "curl")
			engine := bed.RequireEngine(t)
			for range 6 {
				b := &battery{dir: t.TempDir(), engine: engine}
				d := b.boot(t)
				c.Use(t, d)
				file := e2e.Release(t, d, "1", "")
				losePower(t, d, file)
				d = b.boot(t)
				c.Use(t, d)
				if reinstalled(t, d, file) {
					return
				}
			}
			require.NotContains(t, []string{"20.10", "26.1"}, engine.Name, "the power never failed at the moment that matters")
		})
	}
}

// losePower installs an artifact until the engine publishes its port.
func losePower(t *testing.T, d *bed.Device, file string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	install := d.MenderCommand(ctx, "install", file)
	require.NoError(t, install.Start())
	_, err := d.Run("bash", "-c", powerLoss)
	require.NoError(t, err)
	_ = install.Wait()
}

// reinstalled asserts that the first release can be installed after its installation was
// interrupted. It reports whether that took a restart of the engine.
func reinstalled(t *testing.T, d *bed.Device, file string) bool {
	t.Helper()
	if d.IsCppMender() {
		_, err := d.Mender("resume") // it rolls back
		require.NoError(t, err)
	} else {
		d.MustRun(t, "mender-app", "resume")
	}
	setEngineRestart(t, d, bed.RestartCommand)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	restarted := restartWhenAsked(ctx, d)
	e2e.Mender(t, d, "install", file)
	e2e.Mender(t, d, "commit")
	cancel()
	held := <-restarted == nil
	t.Logf("Docker %s held the port: %t", d.Engine, held)
	says := d.MustRun(t, "curl", "-sf", "--retry", "20", "--retry-all-errors", "--retry-delay", "1", e2e.WebURL)
	require.Contains(t, says, "web 1")
	d.MustProvide(t, e2e.Provides("1"))
	return held
}

// afterPowerLoss asserts that release 1 runs again. It reports whether the engine held
// the port.
func afterPowerLoss(t *testing.T, d *bed.Device) bool {
	t.Helper()
	setEngineRestart(t, d, "none")
	r, err := d.Run("mender-app", "resume")
	require.NoError(t, err)
	held := r.Code != 0
	t.Logf("Docker %s held the port: %t", d.Engine, held)
	if held {
		require.Contains(t, r.Output(), "the engine holds port 8080 for a container that is gone: restart the engine")
		setEngineRestart(t, d, bed.RestartCommand)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		restarted := restartWhenAsked(ctx, d)
		d.MustRun(t, "mender-app", "resume")
		require.NoError(t, <-restarted)
	}
	if d.IsCppMender() {
		e2e.Mender(t, d, "resume") // it was interrupted, and rolls back what is rolled back
	}
	says := d.MustRun(t, "curl", "-sf", "--retry", "20", "--retry-all-errors", "--retry-delay", "1", e2e.WebURL)
	require.Contains(t, says, "web 1")
	d.MustProvide(t, e2e.Provides("1"))
	d.MustRun(t, "mender-app", "verify", "shop")
	return held
}

func setEngineRestart(t *testing.T, d *bed.Device, command string) {
	t.Helper()
	d.MustRun(t, "bash", "-ec", `f=/etc/mender/mender-app-docker-compose.conf; sed -i /ENGINE_RESTART/d $f; echo "ENGINE_RESTART_COMMAND=$1" >>$f`, "set", command)
}

// battery is a device that loses its power and is booted again.
type battery struct {
	dir    string
	engine bed.Engine
	device *bed.Device
	boots  int
}

// boot starts the device, with what an earlier boot left on its disk.
func (b *battery) boot(t *testing.T) *bed.Device {
	t.Helper()
	if b.device != nil {
		require.NoError(t, b.device.Kill())
	}
	b.boots++
	d, err := bed.New(b.dir)
	require.NoError(t, err)
	d.Engine, b.device = b.engine, d
	t.Cleanup(func() { require.NoError(t, d.Kill()) })
	programs, err := bed.Programs()
	require.NoError(t, err)
	require.NoError(t, d.Install(programs))
	e2e.ShortHealthWindow(t, d)
	require.NoError(t, d.AddRestartCommand())
	d.MustRun(t, "bash", "-ec", `echo "$1" >/run/boot_id; mount --bind /run/boot_id /proc/sys/kernel/random/boot_id`,
		"boot", fmt.Sprintf("%08x-0000-4000-8000-000000000000", b.boots))
	require.NoError(t, d.StartEngine())
	return d
}
