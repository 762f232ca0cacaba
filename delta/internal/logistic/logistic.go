// Package logistic has the tables by which models mix their predictions: the logistic
// function and its inverse. They are integer arithmetic, so that every machine computes
// the same. They are part of the format.
package logistic

// N is how many entries the tables have.
const N = 4096

// Tables returns 65536/(1+e^(-x/256)) for x-2048, and its inverse for a probability
// shifted right by four. No value of the first is nearer to 0 or 65536 than least.
func Tables(least int64) (squashed [N]uint16, stretched [N]int16) {
	for i := range squashed {
		squashed[i] = uint16(squash(int64(i-N/2), least))
	}
	pi := 0
	for x := range squashed {
		v := int(squashed[x]) >> 4
		for ; pi <= v; pi++ {
			stretched[pi] = int16(x - N/2)
		}
	}
	for ; pi < N; pi++ {
		stretched[pi] = N/2 - 1
	}
	return squashed, stretched
}

// squash computes 65536/(1+e^(-x/256)) with integers alone: e^(-|x|/256) is the
// sixteenth power of the first terms of the series of e^(-|x|/4096).
func squash(x, least int64) int64 {
	const one = int64(1) << 30
	t := max(x, -x) << 30 / 4096
	e := one - t + t*t>>31 - (t*t>>30)*t/6>>30 + ((t*t>>30)*(t*t>>30)/24)>>30
	for range 4 {
		e = e * e >> 30
	}
	p := min(one*65536/(one+e), 65536-least) // for the more likely side
	if x < 0 {
		p = 65536 - p
	}
	return p
}
