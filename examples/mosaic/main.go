package main

import (
	"context"
	"os"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

func main() {
	picture.LimitMemory()
	os.Exit(command(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
