package delta

import (
	"github.com/mender-app/mender-app/delta/elf"
	"github.com/mender-app/mender-app/delta/internal/model"
)

// fieldModel codes where predicted fields are wrong.
type fieldModel struct {
	wrong  *model.FlagModel
	hist   [elf.NumKinds]uint32 // of wrong ones, by kind
	all    uint32               // and of all kinds
	number [elf.NumKinds]model.Prob
	which  [elf.NumKinds][4]model.Prob
	last   [elf.NumKinds][3]int64
	step   [elf.NumKinds]*model.UintModel
}

func newFieldModel() *fieldModel {
	m := &fieldModel{wrong: model.NewFlagModel(3, 13, 200, int(elf.NumKinds), 8)}
	for k := range m.step {
		m.number[k] = model.FreshProb
		copy(m.which[k][:], model.FreshProbs(4))
		m.step[k] = model.NewUintModel()
	}
	return m
}
