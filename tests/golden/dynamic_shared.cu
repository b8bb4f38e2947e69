#if __CUDA_ARCH__ >= 900
#define LAUNCH_SHAPE(threads) __block_size__((threads, 1, 1))
#else
#define LAUNCH_SHAPE(threads) __launch_bounds__(threads)
#endif
extern "C" __global__ void LAUNCH_SHAPE(64)
dynamic_shared(const float* __restrict__ A_ptr, const float* __restrict__ B_ptr, float* __restrict__ C_ptr) {
    const int tx = threadIdx.x;
    extern __shared__ __align__(16) float smem_ptr[];
    smem_ptr[tx] = A_ptr[tx];
    smem_ptr[tx + 64] = B_ptr[tx];
    __syncthreads();
    C_ptr[tx] = smem_ptr[-tx + 63] + smem_ptr[-tx + 127];
}
