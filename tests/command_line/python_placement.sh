# SPDX-License-Identifier: BSD-3-Clause
# Placements that ddp-doctor.toml states: for a run, and for records of one; what names nothing is said.
. "$(dirname "$0")/lib.sh"
need_torch
cd "$work" || exit 1
program=$here/../corpus/ddp114_not_reduced_over_dimension_2.py

# Who holds replicas is inferred: likely.
doctor 1 run --nproc-per-node 4 --out "$work/run" --format json "$program" -- bug
json 'first["rule"] == "DDP114" and first["certainty"] == "likely"'

# Stated: certain, and the dimension has its name.
cat >ddp-doctor.toml <<'TOML'
[placement]
mesh_shape = [2, 2]
mesh_dim_names = ["dp", "cp"]
"*" = { cp = "shard" }
"*.weight" = { cp = "replicate" }
TOML
doctor 1 report "$work/run" --format json
json 'first["rule"] == "DDP114" and first["certainty"] == "certain" and "never reduced over cp {0, 1}, {2, 3}, only over dp {0, 2}, {1, 3}" in first["message"]'
json '{p["name"].rsplit(".")[-1] for p in first["parameters"]} == {"weight"}'
doctor 1 run --nproc-per-node 4 --out "$work/stated" --format json "$program" -- bug
json 'first["certainty"] == "certain"'
mv ddp-doctor.toml other.toml
doctor 1 report "$work/stated" --format json
json 'first["certainty"] == "certain"'  # the record has what was stated when it was made

# A shard is compared with nobody.
printf '[placement]\nmesh_shape = [2, 2]\nmesh_dim_names = ["dp", "cp"]\n"*" = { cp = "shard" }\n' >ddp-doctor.toml
doctor 0 report "$work/run"

# What names nothing.
printf '[placement]\n"nrom.*" = { cp = "replicate" }\n"*" = { cp = "shard" }\n' >ddp-doctor.toml
doctor 1 report "$work/run"
printed 'not used: "nrom.\*" in .placement. matches no parameter'
printed 'no dimension is named cp; no DeviceMesh of the program has'
wrong() {
  printf "$1" >ddp-doctor.toml
  doctor 2 report "$work/run"
  complained "$2"
}
wrong '[placement]\n"*" = { cp = "replciate" }\n' 'line 2: .placement. "\*": cp is "replicate" or "shard", not "replciate"; did you mean replicate?'
wrong '[placement]\n"*" = "replicate"\n' '"\*" must have a placement for each dimension, such as { tp = "replicate" }'
wrong '[placement]\nmesh_shape = [2, 2]\n' 'mesh_shape has 2 sizes and mesh_dim_names 0 names'
wrong '[placement]\nmesh_shape = 4\nmesh_dim_names = ["dp"]\n' 'mesh_shape must be a list, such as \[2, 4\]'
rm ddp-doctor.toml

# The stages of a pipeline by hand are slices of one ModuleList: a slice is no model of its own, so names have no label.
doctor 0 run "$here/../corpus/traps_pipeline_2.py"
printed '^ +8 \| 0\.0\.weight \| inferred \| +\{0\}, \{1\}$'
