"""Families on the card: torch, mm32, TF32; error by both gauges; tiers."""
import sys,statistics,torch,json
sys.path.insert(0,'.proto/new')
import mm32
from mm32.cuda import launch
from mm32.bench.measure import interleave
U=2.0**-24
def fams(M,K,N,seed=0,only=None):
    g=torch.Generator('cuda').manual_seed(seed); D=torch.float64
    rn=lambda *s: torch.randn(*s,generator=g,device='cuda'); ru=lambda *s: torch.rand(*s,generator=g,device='cuda')
    def rb(x,y,l): return torch.exp(-torch.cdist(x.double(),y.double())**2/(2*l*l)).float()
    sm=lambda z: torch.softmax(z,1)
    X=rn(K,8); perm=lambda n: torch.randperm(K,generator=g,device='cuda')[:n] if n<=K else torch.randint(0,K,(n,),generator=g,device='cuda')
    i=torch.arange(M,device='cuda')[:,None].double();k=torch.arange(K,device='cuda')[None].double(); j=torch.arange(N,device='cuda')[None].double()
    def inv(l):
        S=rb(X,X,l).double()+.1*torch.eye(K,device='cuda'); return torch.linalg.inv(S)
    def sel(m,n): return m[torch.arange(n,device='cuda')%m.shape[0]].float()
    F={
    'randn':lambda:(rn(M,K),rn(K,N)),'rand':lambda:(ru(M,K),ru(K,N)),
    'phi0.5':lambda:((ru(M,K)-.5)*torch.exp(.5*rn(M,K)),(ru(K,N)-.5)*torch.exp(.5*rn(K,N))),
    'phi1':lambda:((ru(M,K)-.5)*torch.exp(rn(M,K)),(ru(K,N)-.5)*torch.exp(rn(K,N))),
    'phi2':lambda:((ru(M,K)-.5)*torch.exp(2*rn(M,K)),(ru(K,N)-.5)*torch.exp(2*rn(K,N))),
    'phi4':lambda:((ru(M,K)-.5)*torch.exp(4*rn(M,K)),(ru(K,N)-.5)*torch.exp(4*rn(K,N))),
    'rbf1xnoise':lambda:(rb(X[perm(M)],X,1.),rn(K,N)),'rbf2xnoise':lambda:(rb(X[perm(M)],X,2.),rn(K,N)),'rbf5xnoise':lambda:(rb(X[perm(M)],X,5.),rn(K,N)),
    'rbf1xrbf':lambda:(rb(X[perm(M)],X,1.),rb(X,X[perm(N)],1.)),'rbf2xrbf':lambda:(rb(X[perm(M)],X,2.),rb(X,X[perm(N)],2.)),
    'softmax1':lambda:(sm(rn(M,K)),rn(K,N)),'softmax2':lambda:(sm(2*rn(M,K)),rn(K,N)),'softmax4':lambda:(sm(4*rn(M,K)),rn(K,N)),
    'logitgrad':lambda:(((sm(2*rn(K,M))-torch.nn.functional.one_hot(torch.randint(0,M,(K,),generator=g,device='cuda'),M).float()).T/K),torch.relu(rn(K,N))),
    'loguni4':lambda:(10**(-4*ru(M,K))*torch.sign(rn(M,K)),10**(-4*ru(K,N))*torch.sign(rn(K,N))),
    'loguni8':lambda:(10**(-8*ru(M,K))*torch.sign(rn(M,K)),10**(-8*ru(K,N))*torch.sign(rn(K,N))),
    'outl1000':lambda:(torch.where(ru(M,K)<.001,1000.,1.)*rn(M,K),rn(K,N)),
    'outl1000both':lambda:(torch.where(ru(M,K)<.001,1000.,1.)*rn(M,K),torch.where(ru(K,N)<.001,1000.,1.)*rn(K,N)),
    '6ch300':lambda:(rn(M,K)*torch.where(torch.isin(torch.arange(K,device='cuda'),perm(6)),300.,1.),rn(K,N)*.02),
    'graded':lambda:((rn(M,K)*10**(-6*k/K)).float(),(rn(K,N)*10**(-6*k.T/K)).float()),'spectrum1':lambda:((rn(M,K)/(1+k)).float(),rn(K,N)),'spectrum2':lambda:((rn(M,K)/(1+k)**2).float(),rn(K,N)),
    'relu.5':lambda:(torch.relu(rn(M,K)),rn(K,N)),'relu.1':lambda:(torch.where(ru(M,K)<.1,rn(M,K).abs(),0.),rn(K,N)),'relu.1both':lambda:(torch.where(ru(M,K)<.1,rn(M,K).abs(),0.),torch.where(ru(K,N)<.1,rn(K,N).abs(),0.)),
    'inverse':lambda:(sel(torch.linalg.inv((rn(K,K)/K**.5+2*torch.eye(K,device='cuda')).double()),M),rn(K,N)),'inv_rbf':lambda:(sel(inv(1.),M),rn(K,N)),
    'hilbert':lambda:((1/(i+k+1)).float(),(1/(k.T+j+1)).float()),'hilbxnoise':lambda:((1/(i+k+1)).float(),rn(K,N)),
    'vander':lambda:((torch.linspace(-1,1,M,device='cuda',dtype=D)[:,None]**k).float(),rn(K,N)),'dft':lambda:(torch.cos(2*torch.pi*i*k/K).float(),rn(K,N)),
    'tril':lambda:(torch.tril(rn(M,K)),rn(K,N)),'trilsq':lambda:(torch.tril(rn(K,K))[-M:],rn(K,N)),'trilxtriu':lambda:(torch.tril(rn(M,K)),torch.triu(rn(K,N))),
    'poisson':lambda:(torch.poisson(torch.full((M,K),3.,device='cuda'),generator=g),torch.poisson(torch.full((K,N),.5,device='cuda'),generator=g)),
    'gradlogn':lambda:(rn(M,K)*torch.exp(2*rn(M,1))*torch.exp(rn(1,K)),rn(K,N)*torch.exp(2*rn(1,N))),
    't2':lambda:(rn(M,K)/ru(M,K)**.5,rn(K,N)/ru(K,N)**.5),'cauchy':lambda:(rn(M,K)/rn(M,K),rn(K,N)),
    'exp_neg':lambda:(torch.exp(-20*ru(M,K)),rn(K,N)),'gelu':lambda:(torch.nn.functional.gelu(rn(M,K)),rn(K,N)),
    'diag12':lambda:(lambda s:(rn(M,K)*s,rn(K,N)/s[:,None]))(10**(12*ru(K)-6)),
    'nearI1e-3':lambda:(lambda E:(E[torch.arange(M,device='cuda')%K],E[:,torch.arange(N,device='cuda')%K].contiguous()))(torch.eye(K,device='cuda')+1e-3*rn(K,K)),
    'nearI1e-6':lambda:(lambda E:(E[torch.arange(M,device='cuda')%K],E[:,torch.arange(N,device='cuda')%K].contiguous()))(torch.eye(K,device='cuda')+1e-6*rn(K,K)),
    'onehot':lambda:(torch.nn.functional.one_hot(torch.randint(0,K,(M,),generator=g,device='cuda'),K).float(),rn(K,N)),
    'banded':lambda:(torch.where((i*(K/M)-k).abs()<=8,rn(M,K),0.),rn(K,N)),'1%':lambda:(torch.where(ru(M,K)<.01,rn(M,K),0.),rn(K,N)),'1%both':lambda:(torch.where(ru(M,K)<.01,rn(M,K),0.),torch.where(ru(K,N)<.01,rn(K,N),0.)),
    'tfidf':lambda:(torch.where(ru(M,K)<.01,torch.poisson(torch.ones(M,K,device='cuda'),generator=g)+1,0.)*torch.log(1+K/(1+k)).float(),rn(K,N)),
    'onebadrow':lambda:(lambda a,b:(a.index_put_((torch.tensor([5],device='cuda'),),rn(1,K)*torch.exp(20*rn(1,K))),b))(rn(M,K),rn(K,N)),
    'naninf':lambda:(lambda a,b:(a[7,9].fill_(float('nan')),b[11,13].fill_(float('inf')),(a,b))[2])(rn(M,K),rn(K,N)),
    'subnormal':lambda:(rn(M,K)*1e-41,rn(K,N)),'allnan':lambda:(rn(M,K)*float('nan'),rn(K,N)),'allinf':lambda:(torch.full((M,K),float('inf'),device='cuda'),rn(K,N)),
    'cancel':lambda:(1+1e-3*rn(M,K),((1+1e-3*rn(K,N))*torch.where(torch.arange(K,device='cuda')%2==0,1.,-1.)[:,None])),
    }
    for n,f in F.items():
        if only is None or n in only:
            try: yield n,*[x.float().contiguous() for x in f()]
            except Exception as e: print(n,'!',str(e)[:80])
def main(M,K,N,only=None,rounds=5):
    rows=[]
    for n,a,b in fams(M,K,N,only=only):
        out=torch.empty(M,N,device='cuda'); to=torch.empty(M,N,device='cuda')
        mm32.matmul(a,b,kernel='tensorcore',out=out); before=launch.tier_calls(0)
        mm32.matmul(a,b,kernel='tensorcore',out=out); after=launch.tier_calls(0)
        tiers=[t for t in after if after[t]>before[t]]
        t=interleave({'torch':lambda:torch.matmul(a,b,out=to),'mm32':lambda:mm32.matmul(a,b,kernel='tensorcore',out=out)},rounds,10)
        med={v:statistics.median(x)*1e6 for v,x in t.items()}
        r=slice(0,512)
        ref=a[r].double()@b.double(); ab=a[r].double().abs()@b.double().abs()
        def err(c):
            c=c[r].double(); same=(c==ref)|(c.isnan()&ref.isnan()); e=torch.where(same,0.,(c-ref).abs()); fin=ref.isfinite()
            e=torch.where(fin|~c.isfinite(),e,torch.inf)
            return (torch.where(fin,e,0).norm()/torch.where(fin,ref,0).norm()/U).item(),torch.where(same,0.,e/(U*ab)).nan_to_num(nan=float('inf')).max().item()
        et,em=err(to),err(out)
        ok=(em[0]<=max(et[0],4)*1.02 and em[1]<=max(et[1],4)*1.02)
        rows.append((n,med['torch']/med['mm32']))
        print(f"{n:13s} {med['torch']:8.1f} {med['mm32']:8.1f} {med['torch']/med['mm32']:5.2f}  torch {et[0]:8.3g}/{et[1]:<8.3g} mm32 {em[0]:8.3g}/{em[1]:<8.3g} {'' if ok else 'BAD'} {tiers}",flush=True)
    import math
    print('geomean',math.exp(sum(math.log(r) for _,r in rows)/len(rows)),'worst',min(rows,key=lambda r:r[1]))
if __name__=='__main__':
    s=[int(x) for x in sys.argv[1].split('x')]; main(*s,only=sys.argv[2].split(',') if len(sys.argv)>2 else None)
