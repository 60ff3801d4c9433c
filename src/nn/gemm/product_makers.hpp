// Every library of products, one file each; the registry is in product_library.cpp.
#pragma once

#include "nn/gemm/product_library.hpp"

namespace garonne::nn {

// The tensor library's own on CPUs, and for bfloat16 oneDNN within it.
const ProductLibrary& mkl_products();
// oneDNN by itself, for float32: it takes the weights in blocks.
const ProductLibrary& onednn_products();
// OpenBLAS, opened at run time.
const ProductLibrary& openblas_products();
// cuBLAS, by the tensor library; biases are added by a kernel of their own.
const ProductLibrary& cublas_products();
// cuBLASLt, by the tensor library: it adds the bias within the product.
const ProductLibrary& cublaslt_products();

}  // namespace garonne::nn
