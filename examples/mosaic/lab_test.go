package main

import (
	"image"
	"image/color"
	"math"
)

// The tests have their own implementation of CIE 15 and IEC 61966-2-1.

// linear is the transfer function of sRGB.
func linear(v uint8) float64 {
	c := float64(v) / 255
	if c <= 0.04045 {
		return c / 12.92
	}
	return math.Pow((c+0.055)/1.055, 2.4)
}

// lab converts linear sRGB to CIELAB under D65, by the matrix of IEC 61966-2-1.
func lab(r, g, b float64) [3]float64 {
	rows := [3][3]float64{{0.4124, 0.3576, 0.1805}, {0.2126, 0.7152, 0.0722}, {0.0193, 0.1192, 0.9505}}
	var f [3]float64
	for i, m := range rows {
		t := (m[0]*r + m[1]*g + m[2]*b) / (m[0] + m[1] + m[2])
		if t > 216.0/24389 {
			f[i] = math.Pow(t, 1.0/3)
		} else {
			f[i] = (24389.0/27*t + 16) / 116
		}
	}
	return [3]float64{116*f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])}
}

// distanceOf is ΔE of CIE 1976.
func distanceOf(a, b [3]float64) float64 {
	return math.Sqrt((a[0]-b[0])*(a[0]-b[0]) + (a[1]-b[1])*(a[1]-b[1]) + (a[2]-b[2])*(a[2]-b[2]))
}

// labOfMean is the colour of a part of a picture, its mean taken in linear light.
func labOfMean(img image.Image, r image.Rectangle) [3]float64 {
	var red, green, blue float64
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			c := color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)
			red += linear(c.R)
			green += linear(c.G)
			blue += linear(c.B)
		}
	}
	n := float64(r.Dx() * r.Dy())
	return lab(red/n, green/n, blue/n)
}
