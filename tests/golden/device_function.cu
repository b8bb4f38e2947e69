__device__ __forceinline__ float square_at(const float* p) { return __fmul_rn(*p, *p); }

#if __CUDA_ARCH__ >= 900
#define LAUNCH_SHAPE(threads) __block_size__((threads, 1, 1))
#else
#define LAUNCH_SHAPE(threads) __launch_bounds__(threads)
#endif
extern "C" __global__ void LAUNCH_SHAPE(64)
device_function(const float* __restrict__ A_ptr, float* __restrict__ B_ptr) {
    const int tx = threadIdx.x;
    B_ptr[tx] = square_at(&A_ptr[tx]);
}
