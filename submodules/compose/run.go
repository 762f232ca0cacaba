package compose

import (
	"context"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
)

// Run implements submodules.CommandRunner. It moves no tag: the container is made from the
// application's own name of the image.
func (s *session) Run(ctx context.Context, r submodules.RunRequest) error {
	probe := r.Probe
	pl, err := s.read(ctx, func(dir string, all []container.Summary) []container.Summary {
		if probe { // the directory may be any
			return s.owned(all)
		}
		return s.from(dir, all)
	})
	if err != nil {
		return err
	}
	name := r.Service
	svc, ok := pl.model.Services[name]
	if !ok || strings.HasPrefix(name, "-") {
		return invalid("the compose files have no service %s to run a command in: they have %s", name, strings.Join(pl.model.names(), ", "))
	}
	if err := s.pin(ctx, pl); err != nil || probe {
		return err
	}
	if err := s.findMarked(ctx, pl); err != nil {
		return err
	}
	for _, p := range pl.pins {
		if ref, _ := submodules.SplitURL(svc.Image); image.SameRef(p.url, ref) {
			pl.images[name] = p.img.Ref(s.req.App)
		}
	}
	if err := s.putSecrets(pl.project); err != nil {
		return err
	}
	if err := s.adopt(ctx, appDirectory(s.req.App, pl.dir), pl.existing); err != nil {
		return err
	}
	p, err := s.overridden(pl)
	if err != nil {
		return err
	}
	args := []string{"run", "--rm", "--no-deps", "-T", "--label", labelRun + "=" + s.req.App, "-e", submodules.EnvOldVersion + "=" + r.OldVersion,
		"-e", submodules.EnvNewVersion + "=" + r.NewVersion, name}
	log := commandLines(name, s.req.Log)
	output, complaints := &tail{log: log}, &tail{log: log}
	err = runInContainer(ctx, s.engine.Client(), s.req.App, s.req.Logf, func() error {
		// Without bounds: the files were read with them, and what the command writes could
		// look like the message of one.
		return p.run(ctx, pl.compose, output, complaints, append(args, r.Words...)...)
	})
	output.flush()
	complaints.flush()
	return commandReason(err, name, output.final(), complaints.final())
}
