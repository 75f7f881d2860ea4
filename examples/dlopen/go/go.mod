module symm.example/all_reduce

go 1.18

require github.com/ebitengine/purego v0.10.2
