package layout

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// The integers agree with the published formula, to about a quarter of what can be seen.
func TestOKLabOfEveryKindOfColour(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Colour{rapid.Byte().Draw(t, "red"), rapid.Byte().Draw(t, "green"), rapid.Byte().Draw(t, "blue")}
		got, want := lightOf(c).lab(), oklab(picture.Linear{R: picture.Decode8(c[0]), G: picture.Decode8(c[1]), B: picture.Decode8(c[2])})
		for k := range want {
			if d := math.Abs(float64(got[k])/labUnit - want[k]); d > 0.005 {
				t.Fatalf("%v: got %v, want %v times %d", c, got, want, labUnit)
			}
		}
	})
}

// White and grey have no colour.
func TestOKLabOfGrey(t *testing.T) {
	for v := range 256 {
		c := lightOf(Colour{uint8(v), uint8(v), uint8(v)}).lab()
		if max(c[1], -c[1], c[2], -c[2]) > 2 || v == 255 && (c[0] < labUnit-1 || c[0] > labUnit) {
			t.Errorf("grey %d: got %v, want no colour", v, c)
		}
	}
}

// The table of light is the same on every machine: no value is so near to the middle between two integers that the last digit of a
// power could matter.
func TestTableOfLightDoesNotDependOnTheLastDigit(t *testing.T) {
	for v := range 256 {
		x := picture.Decode8(uint8(v)) * lightUnit
		if d := math.Abs(x - math.Floor(x) - 0.5); d < 1e-6 {
			t.Errorf("light of %d: got %v, want it further from a half", v, x)
		}
	}
}

// The transform keeps distances, but for the mean, which is that of light.
func TestFeaturesKeepDistances(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var v, w [fine * fine]int32
		want := 0.0
		for i := range v {
			v[i], w[i] = rapid.Int32Range(-labUnit, labUnit).Draw(t, "v"), rapid.Int32Range(-labUnit, labUnit).Draw(t, "w")
			want += float64(v[i]-w[i]) * float64(v[i]-w[i])
		}
		transform(&v)
		transform(&w)
		got := 0.0
		for i := range v {
			got += float64(v[i]-w[i]) * float64(v[i]-w[i])
		}
		if math.Abs(math.Sqrt(got)-math.Sqrt(want)) > 12 {
			t.Fatalf("distance: got %.1f after the transform, want %.1f", math.Sqrt(got), math.Sqrt(want))
		}
	})
}
