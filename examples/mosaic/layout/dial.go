package layout

// dial is what a position of the dial between best match and every tile once means.
type dial struct {
	radius int64 // within which no tile comes twice, in tenths of a cell
	price  int64 // of using a tile once more, in hundredths of the spacing of tiles
	cover  int64 // how many tiles shall be used, in per cent of those that a choice by mean colour alone uses
	atMost int64 // the same, in per cent of the library
}

// dials are the meanings of 0, 25, 50, 75 and 100 per cent.
var dials = [...]dial{
	{radius: 30, price: 1000, cover: 2000, atMost: 100},
	{radius: 28, price: 125, cover: 850, atMost: 96},
	{radius: 25, price: 15, cover: 415, atMost: 92},
	{radius: 23, price: 7, cover: 200, atMost: 46},
	{radius: 20, price: 0, cover: 0, atMost: 0},
}

// dial returns what the setting means.
func (r Reuse) dial() dial {
	step, rest := r.Percent()/25, int64(r.Percent()%25)
	a := dials[step]
	if rest == 0 {
		return a
	}
	b := dials[step+1]
	between := func(a, b int64) int64 { return (a*(25-rest) + b*rest) / 25 }
	return dial{between(a.radius, b.radius), between(a.price, b.price), between(a.cover, b.cover), between(a.atMost, b.atMost)}
}

// zone is what may not or should not be near a cell that uses the same tile.
type zone []neighbour

type neighbour struct {
	x, y    int
	blocked bool
	cost    int64 // if it is not blocked
}

// newZone makes the zone of a radius in tenths of a cell. Up to twice the radius the same tile costs something, up to
// half the spacing. In a small library the radius is less, so that half of the tiles are never blocked.
func newZone(radius int64, library int, spacing int64) zone {
	for ; ; radius-- {
		if z, blocked := zoneOf(radius*radius, spacing); 2*blocked < library {
			return z
		}
	}
}

// zoneOf makes the zone of a squared radius in hundredths, and counts what is blocked.
func zoneOf(squared, spacing int64) (z zone, blocked int) {
	reach := 1
	for int64(reach*reach)*100 < 4*squared {
		reach++
	}
	for y := -reach; y <= reach; y++ {
		for x := -reach; x <= reach; x++ {
			d := int64(x*x+y*y) * 100
			switch {
			case d == 0 || d >= 4*squared:
			case d <= squared:
				z = append(z, neighbour{x: x, y: y, blocked: true})
				blocked++
			default:
				z = append(z, neighbour{x: x, y: y, cost: spacing * (4*squared - d) / (6 * squared)})
			}
		}
	}
	return z, blocked
}
