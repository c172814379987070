# SPDX-License-Identifier: BSD-3-Clause
# cmake -D OUT=FILE.cpp -D PAGES=a.md;b.md -P embed_pages.cmake: the rule pages as C++.
cmake_minimum_required(VERSION 3.25)
set(entries "")
foreach(page IN LISTS PAGES)
  get_filename_component(code ${page} NAME_WE)
  file(READ ${page} text)
  string(APPEND entries "    {\"${code}\", R\"page(${text})page\"},\n")
endforeach()
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT
"#include \"tool/cli/rule_pages.h\"

namespace ddp_doctor {

std::span<const RulePage> rule_pages() {
  static constexpr RulePage kPages[] = {
@entries@  };
  return kPages;
}

}  // namespace ddp_doctor
")
