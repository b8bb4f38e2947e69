#if __CUDA_ARCH__ >= 900
#define LAUNCH_SHAPE(threads) __block_size__((threads, 1, 1))
#else
#define LAUNCH_SHAPE(threads) __launch_bounds__(threads)
#endif
extern "C" __global__ void LAUNCH_SHAPE(128)
guarded_by_let(const int* __restrict__ A_ptr, int* __restrict__ B_ptr, int n) {
    const int tx = threadIdx.x;
    const int start = tx * 4;
    *(int4*)(B_ptr + start) = *(int4*)(A_ptr + start);
    if (start < n) {
        B_ptr[start] = A_ptr[start] * 2;
    }
}
