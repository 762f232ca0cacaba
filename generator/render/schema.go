package render

import (
	"bytes"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
)

// checkSchemas compares the values of a chart and of its dependencies with their schemas.
// Helm's own check downloads what schemas refer to.
func checkSchemas(c *chart.Chart, values any) error {
	if text := c.Schema; len(text) > 0 {
		if err := checkSchema(text, values); err != nil {
			return fmt.Errorf("values of the chart %s: %w", c.Name(), err)
		}
	}
	for _, d := range c.Dependencies() {
		if of, ok := asMap(values)[d.Name()]; ok && of != nil {
			if err := checkSchemas(d, of); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkSchema(text []byte, values any) error {
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	const name = "values.schema.json"
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(elsewhere{})
	if err := compiler.AddResource(name, schema); err != nil {
		return err
	}
	compiled, err := compiler.Compile(name)
	if err != nil {
		return err
	}
	return compiled.Validate(asMap(values))
}

// elsewhere stands for the schemas that another refers to. Anything is valid by them.
type elsewhere struct{}

func (elsewhere) Load(string) (any, error) { return true, nil }

// asMap is a map of values without its type.
func asMap(values any) map[string]any {
	switch m := values.(type) {
	case common.Values:
		return m
	case map[string]any:
		return m
	}
	return nil
}
